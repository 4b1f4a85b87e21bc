/* What Python hands over for a forward pass (`backend/cpu/structs.py` mirrors these structs). */
#ifndef SLUICE_DECODER_H
#define SLUICE_DECODER_H
#include "../kernels.h"

struct decoder_layer {
    struct product query_key_value, output, gate_up, down;
    const void *norm_before, *norm_after;   /* [hidden]: before attention, and after it */
    const void *norm_query, *norm_key;      /* [dim], or NULL */
    void *key_cache, *value_cache;          /* [blocks, block_size, kv_heads, entry_bytes] */
    int64_t group;                          /* index of the layer group, which shares block tables and slots */
    int64_t window;                         /* 0: none */
    float scale, softcap;                   /* softcap 0: none */
};

struct decoder {
    int64_t layers, hidden, inner, vocab;   /* inner: width of the feed-forward layers */
    const struct decoder_layer *layer;
    const void *norm_last;                  /* [hidden] */
    struct product head;
    float epsilon;
};

struct step { /* inputs and outputs of one call, besides `struct work` */
    const int64_t *ids;                     /* [tokens], embedded by the head's weight; NULL: `hidden` is given */
    void *hidden;                           /* [tokens, hidden]: embedded tokens; overwritten */
    const int64_t *positions;               /* [tokens] */
    const int64_t *wanted;                  /* [count] flat indices whose logits are computed */
    int64_t count;
    const void *cosine, *sine;              /* [positions, dim / 2] */
    void *scratch;                          /* sluice_scratch bytes */
    float *logits;                          /* [count, vocab] */
    double seconds;                         /* time limit of the call; 0: none */
    double share;                           /* share of the time for the tokens from `firm` on; above 0 */
    int64_t firm;                           /* tokens that are never dropped; a quarter of the others is kept too */
    int64_t kept;                           /* out: tokens that were computed in all layers */
    int64_t spent;                          /* out: tokens computed in each layer, summed over the layers */
    int64_t *best;                          /* out: [count] index of each row's largest logit, the lowest of a tie */
    float *highest;                         /* out: [count] that logit; NaN if a logit of the row is NaN */
};
#endif
