/* Paged attention over one step, split into tiles that threads take one by one. */
#ifndef SLUICE_ATTENTION_H
#define SLUICE_ATTENTION_H
#include "../kernels.h"

/* Whether this code supports these sizes. */
int attention_fits(const struct work *work);

/* Writes the tiles of a step. `tiles` has room for attention_count(work) entries. */
int64_t attention_count(const struct work *work);
void attention_cut(const struct work *work, struct tile *tiles);

/* Writes KV heads [first, end) of one token to a cache, of `keys` or of values. `from`: head `first`, the others each
 * `apart` bytes later. */
void attention_keep(const struct work *work, const struct kernels *kernels, const char *from, size_t apart, int64_t slot,
                    int64_t first, int64_t end, int keys, void *cache);
#endif
