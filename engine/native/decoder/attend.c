/* Rotation, the cache and attention of a pass. */
#include "../attention/attention.h"
#include "phases.h"

/* Rotates the queries and keys of KV heads [first, end) of one token in place and writes keys and values to the cache. */
static void rotate_and_keep(const struct pass *pass, const struct decoder_layer *layer, int64_t row, int64_t first,
                            int64_t end) {
    const struct work *work = &pass->work[layer->group];
    const int bf16 = (int)work->bf16;
    const int64_t group = work->heads / work->kv_heads;
    const size_t item = bf16 ? 2 : 4, head_bytes = item * (size_t)work->dim;
    char *heads = pass->mixed + item * (size_t)(row * qkv_width(work));
    const size_t angle = item * (size_t)(pass->step->positions[row] * (work->dim / 2));
    for (int64_t head = first * group; head < end * (group + 1) - first; head++) {
        const int is_query = head < end * group;
        const void *norm = is_query ? layer->norm_query : layer->norm_key;
        char *at = heads + (size_t)(is_query ? head : work->heads + first + head - end * group) * head_bytes;
        if (norm != NULL)
            pass->kernels->norm(at, norm, pass->decoder->epsilon, work->dim, at, bf16);
        pass->kernels->rotate(at, (const char *)pass->step->cosine + angle, (const char *)pass->step->sine + angle,
                              work->dim, bf16);
    }
    const size_t token = (size_t)work->kv_heads * head_bytes;
    const int64_t slot = work->slots[row];
    const char *keys = heads + (size_t)(work->heads + first) * head_bytes;
    attention_keep(work, pass->kernels, keys, head_bytes, slot, first, end, 1, layer->key_cache);
    attention_keep(work, pass->kernels, keys + token, head_bytes, slot, first, end, 0, layer->value_cache);
}

void decoder_rotate(const struct pass *pass, _Atomic int64_t *next, const struct decoder_layer *layer) {
    for (int64_t row; pool_take(next, pass->step->kept, &row);)
        rotate_and_keep(pass, layer, row, 0, pass->work->kv_heads);
}

int decoder_quantises_in_tiles(const struct pass *pass, const struct decoder_layer *layer, int64_t rows) {
    return layer->output.int8 && pass->singles && pass->tile_count == pass->work->tokens && own_rows(pass->decoder, rows) == 0;
}

void decoder_attend(const struct pass *pass, const struct worker *worker, _Atomic int64_t *next,
                    const struct decoder_layer *layer, int quantises) {
    const struct work *work = &pass->work[layer->group];
    const struct layer view = {.query = pass->mixed, .query_token = qkv_width(work), .query_head = work->dim,
                               .key_cache = layer->key_cache, .value_cache = layer->value_cache, .out = pass->attended,
                               .window = layer->window, .scale = layer->scale, .softcap = layer->softcap};
    for (int64_t index; pool_take(next, pass->tile_count, &index);) {
        struct tile tile = pass->tiles[index];
        const int64_t left = pass->step->kept - tile.token;
        if (left <= 0)
            continue;
        if (left < tile.count)
            tile.count = (int)left;
        if (pass->singles) { /* no other tile reads what this one rotates */
            rotate_and_keep(pass, layer, tile.token, tile.kv_head, tile.kv_head + tile.heads);
            if (index + worker->threads < pass->tile_count) /* where threads take turns, its own next one */
                tile.after = &pass->tiles[index + worker->threads];
        }
        pass->kernels->attend(work, &view, &tile);
        if (quantises) {
            const int64_t size = layer->output.inner;
            prepare(pass, QUANTISED, pass->attended + (size_t)tile.token * row_bytes(pass, size), size, tile.token);
        }
    }
}
