/* All loops of one instruction set, and their table. Included by kernels.c with NAME, LANES and optionally PAIRS. */
#include "lanes.h"
#include "tile.h"
#ifdef PAIRS
#include "pair_tile.h"
#endif
#include "run_tile.h"
#include "product.h"
#include "rows.h"

static const struct kernels NAME(kernels) = {
    .attend = NAME(run_tile),
    .multiply = NAME(multiply),
    .panels = NAME(panels),
    .pack = NAME(pack),
    .unpack = NAME(unpack),
    .norm = NAME(norm),
    .rotate = NAME(rotate),
    .width = WIDTH,
#ifdef PAIRS
    .pairs = 1,
#endif
};

#undef V
#undef WIDTH
#undef COLUMNS
#undef PAIRS
#undef NAME
#undef LANES
