/* Dispatches a tile to its loop, with constant sizes for common head dimensions. Included once per instruction set. */

static void NAME(run_tile)(const struct work *work, const struct layer *layer, const struct tile *tile) {
#ifdef PAIRS
    if (work->bf16 && work->dim % 32 == 0) {
        if (work->dim == 64)
            NAME(pair_body)(work, layer, tile, 64);
        else if (work->dim == 128)
            NAME(pair_body)(work, layer, tile, 128);
        else
            NAME(pair_body)(work, layer, tile, (int)work->dim);
        return;
    }
#endif
    struct tile one = *tile;
    for (; one.kv_head < tile->kv_head + tile->heads; one.kv_head++) {
        if (work->bf16) {
            if (work->dim == 64)
                NAME(body)(work, layer, &one, 64, 1);
            else if (work->dim == 128)
                NAME(body)(work, layer, &one, 128, 1);
            else
                NAME(body)(work, layer, &one, (int)work->dim, 1);
        } else {
            if (work->dim == 64)
                NAME(body)(work, layer, &one, 64, 0);
            else if (work->dim == 128)
                NAME(body)(work, layer, &one, 128, 0);
            else
                NAME(body)(work, layer, &one, (int)work->dim, 0);
        }
    }
}
