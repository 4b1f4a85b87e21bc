/* The phases of a layer. Each is called by all threads of a pass, which share its items by the counter `next`. */
#ifndef SLUICE_PHASES_H
#define SLUICE_PHASES_H
#include "pass.h"

/* Normalises rows for a product, and brings them into its form. Returns the input of the product. */
const void *decoder_norm(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                         const void *weight, int64_t rows, const struct product *product);

/* Brings rows into the form of a product. Returns the input of the product. */
const void *decoder_prepare(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                            int64_t rows, const struct product *product);

/* Multiplies rows. `after`: the product that follows. The caller waits for the other threads. */
void decoder_multiply(const struct pass *pass, struct worker *worker, _Atomic int64_t *next,
                      const struct product *product, const struct product *after, const void *in, int64_t rows,
                      void *out, int64_t stride);

/* Rotates the queries and keys of all tokens in place and writes keys and values to the cache. */
void decoder_rotate(const struct pass *pass, _Atomic int64_t *next, const struct decoder_layer *layer);

/* Attends. Where all rows are single tokens it rotates them first; `quantises`: see decoder_quantises_in_tiles. */
void decoder_attend(const struct pass *pass, const struct worker *worker, _Atomic int64_t *next,
                    const struct decoder_layer *layer, int quantises);

/* Whether a tile of attention quantises its token's row for the output product: it must have all heads of the row. */
int decoder_quantises_in_tiles(const struct pass *pass, const struct decoder_layer *layer, int64_t rows);

/* Gathers the wanted rows of the residual and of attention's output: only they need the last feed-forward layer. */
void decoder_gather(const struct pass *pass, _Atomic int64_t *next);

/* Called by one thread after `done` layers. Keeps as many of the droppable tokens as fit into the remaining time at
 * the pace of the finished layers, and always a quarter of them, so that a prefill progresses. */
void decoder_keep_deadline(struct pass *pass, int64_t done);
#endif
