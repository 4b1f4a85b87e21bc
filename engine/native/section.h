/* All loops of one instruction set, and their table. Included by kernels.c with NAME, LANES and optionally PAIRS, QUADS and
 * TILES. */
#include "lanes.h"
#include "attention/int8_entry.h"
#include "attention/few_rows.h"
#include "attention/many_rows.h"
#define COLUMNS 2 /* registers per panel row: BLOCK_ROWS × COLUMNS sums must stay in registers */
#define BLOCK_ROWS (LANES == 16 ? 12 : 6) /* rows of a product that share each register of the weight */
#define WIDTH (COLUMNS * LANES)
#include "int8.h"
#ifdef PAIRS
#include "wide_pairs.h"
#include "attention/pair_tile.h"
#endif
#ifdef TILES
#include "amx/product.h"
#endif
#include "product.h"
#include "rows.h"

/* Calls a loop with constant sizes for common head dimensions. */
#define DISPATCH(loop)                                            \
    do {                                                          \
        if (work->int8_cache)                                     \
            loop(work, layer, &one, (int)work->dim, (int)work->bf16, 1); \
        else if (work->bf16)                                      \
            loop(work, layer, &one, (int)work->dim, 1, 0);        \
        else if (work->dim == 64)                                 \
            loop(work, layer, &one, 64, 0, 0);                    \
        else if (work->dim == 128)                                \
            loop(work, layer, &one, 128, 0, 0);                   \
        else                                                      \
            loop(work, layer, &one, (int)work->dim, 0, 0);        \
    } while (0)

/* Dispatches a tile to its loop, with constant sizes for common head dimensions. */
static void NAME(run_tile)(const struct work *work, const struct layer *layer, const struct tile *tile) {
    const int64_t rows = tile->count * (work->heads / work->kv_heads);
#ifdef QUADS
    if (work->bf16 && work->int8_cache && work->dim % 64 == 0 && rows <= FEW_INT8) {
        if (work->dim == 64)
            NAME(int8_body)(work, layer, tile, 64);
        else
            NAME(int8_body)(work, layer, tile, (int)work->dim);
        return;
    }
#endif
#ifdef PAIRS
    if (work->bf16 && work->dim % 32 == 0) {
        if (work->int8_cache && work->dim == 64)
            NAME(pair_body)(work, layer, tile, 64, 1);
        else if (work->int8_cache)
            NAME(pair_body)(work, layer, tile, (int)work->dim, 1);
        else if (work->dim == 64)
            NAME(pair_body)(work, layer, tile, 64, 0);
        else if (work->dim == 128)
            NAME(pair_body)(work, layer, tile, 128, 0);
        else
            NAME(pair_body)(work, layer, tile, (int)work->dim, 0);
        return;
    }
#endif
    struct tile one = *tile;
    for (; one.kv_head < tile->kv_head + tile->heads; one.kv_head++) {
        if (rows >= MANY_ROWS)
            DISPATCH(NAME(many_body));
        else
            DISPATCH(NAME(body));
    }
}

static const struct kernels NAME(kernels) = {
    .attend = NAME(run_tile),
    .multiply = NAME(multiply),
    .panels = NAME(panels),
    .pack = NAME(pack),
    .unpack = NAME(unpack),
    .panel_bytes = NAME(panel_bytes),
    .form = NAME(form),
    .quantise = NAME(quantise),
    .widen = NAME(widen_row),
    .norm = NAME(norm),
    .largest = NAME(largest),
    .keep = NAME(keep),
    .rotate = NAME(rotate),
    .width = WIDTH,
#ifdef TILES
    .leave = NAME(leave),
#endif
#ifdef PAIRS
    .pairs = 1,
#endif
};

#undef DISPATCH
#undef V
#undef WIDTH
#undef COLUMNS
#undef BLOCK_ROWS
#undef PAIRS
#undef WIDE_SUMS
#undef QUADS
#undef TILES
#undef TILED_ROWS
#undef TILED_QUERIES
#undef GROUP
#undef UNSIGNED
#undef NAME
#undef LANES
