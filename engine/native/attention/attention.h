/* Paged attention over one step, split into tiles that threads take one by one. */
#ifndef SLUICE_ATTENTION_H
#define SLUICE_ATTENTION_H
#include "../kernels.h"

/* Whether this code supports these sizes. */
int attention_fits(const struct work *work);

/* Writes the tiles of a step. `tiles` has room for attention_count(work) entries. */
int64_t attention_count(const struct work *work);
void attention_cut(const struct work *work, struct tile *tiles);
#endif
