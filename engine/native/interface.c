/* What Python calls beside the forward pass: packed weights, single products, and the layout of the structs. */
#include <stddef.h>

#include "decoder.h"

/* Unpacks rows of a packed weight to out [count, inner]: the embeddings, if they share the head's weight. */
void sluice_rows(const struct product *product, const int64_t *rows, int64_t count, int bf16, void *out, int level) {
    const struct kernels *kernels = kernels_of(level);
    for (int64_t row = 0; row < count; row++)
        kernels->unpack(product, rows[row], bf16, (char *)out + (size_t)(row * product->inner) * (bf16 ? 2 : 4));
}

/* Returns the number of outputs that a weight's panels hold, including padding. */
int64_t sluice_packed_rows(const struct product *product, int level) {
    const struct kernels *kernels = kernels_of(level);
    return kernels->panels(product) * kernels->width;
}

/* Returns the bytes of a packed weight. */
int64_t sluice_packed_bytes(const struct product *product, int bf16, int level) {
    const struct kernels *kernels = kernels_of(level);
    return kernels->panels(product) * (int64_t)kernels->panel_bytes(product, bf16);
}

/* Packs weight [outer, inner] and bias [outer] or NULL into `packed`, of sluice_packed_bytes, and `packed_bias`, with
 * sluice_packed_rows values. The weight is quantised if the product is int8. */
void sluice_pack(const struct product *product, const void *weight, const void *bias, int bf16, void *packed,
                 float *packed_bias, int level) {
    kernels_of(level)->pack(product, weight, bias, bf16, packed, packed_bias);
}

/* Quantises rows [rows, inner] as the decoder does for an int8 product, and multiplies them: `quantised` has room for
 * sluice_quantised_bytes each. For tests and measurements of single products. */
int64_t sluice_quantised_bytes(int64_t inner) { return quantised_bytes(inner); }

void sluice_multiply(const struct product *product, const void *in, int64_t rows, void *out, int64_t stride, int bf16,
                     void *quantised, int level) {
    const struct kernels *kernels = kernels_of(level);
    const size_t bytes = (bf16 ? 2 : 4) * (size_t)product->inner;
    for (int64_t row = 0; product->int8 && row < rows; row++)
        kernels->quantise((const char *)in + (size_t)row * bytes, product->inner, bf16,
                          (char *)quantised + row * quantised_bytes(product->inner));
    for (int64_t panel = 0; panel < kernels->panels(product); panel++)
        kernels->multiply(product, panel, product->int8 ? quantised : in, 0, rows, out, stride, bf16, product->packed);
}

/* Field offsets of each struct that Python mirrors (native.py, decoder.py). */
static const struct layout layouts[] = {
#define STRUCT(type) {#type, 0, (int64_t)sizeof(struct type)}
#define FIELD(type, field) {#type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field)}
    STRUCT(work), FIELD(work, rows), FIELD(work, tokens), FIELD(work, heads), FIELD(work, kv_heads), FIELD(work, dim),
    FIELD(work, block_size), FIELD(work, bf16), FIELD(work, threads), FIELD(work, row_first), FIELD(work, row_start),
    FIELD(work, table_first), FIELD(work, tables), FIELD(work, slots),
    STRUCT(layer), FIELD(layer, query), FIELD(layer, query_token), FIELD(layer, query_head), FIELD(layer, key),
    FIELD(layer, value), FIELD(layer, key_token), FIELD(layer, key_head), FIELD(layer, value_token),
    FIELD(layer, value_head), FIELD(layer, key_cache), FIELD(layer, value_cache), FIELD(layer, out),
    FIELD(layer, window), FIELD(layer, scale), FIELD(layer, softcap),
    STRUCT(product), FIELD(product, packed), FIELD(product, bias), FIELD(product, inner), FIELD(product, outer),
    FIELD(product, kind), FIELD(product, int8),
    STRUCT(decoder_layer), FIELD(decoder_layer, query_key_value), FIELD(decoder_layer, output),
    FIELD(decoder_layer, gate_up), FIELD(decoder_layer, down), FIELD(decoder_layer, norm_before),
    FIELD(decoder_layer, norm_after), FIELD(decoder_layer, norm_query), FIELD(decoder_layer, norm_key),
    FIELD(decoder_layer, key_cache), FIELD(decoder_layer, value_cache), FIELD(decoder_layer, group),
    FIELD(decoder_layer, window), FIELD(decoder_layer, scale), FIELD(decoder_layer, softcap),
    STRUCT(decoder), FIELD(decoder, layers), FIELD(decoder, hidden), FIELD(decoder, inner), FIELD(decoder, vocab),
    FIELD(decoder, layer), FIELD(decoder, norm_last), FIELD(decoder, head), FIELD(decoder, epsilon),
    STRUCT(step), FIELD(step, hidden), FIELD(step, positions), FIELD(step, wanted), FIELD(step, count),
    FIELD(step, cosine), FIELD(step, sine), FIELD(step, scratch), FIELD(step, logits), FIELD(step, seconds),
    FIELD(step, share), FIELD(step, firm), FIELD(step, kept), FIELD(step, spent), FIELD(step, best),
    FIELD(step, highest),
};

/* Returns the entry at this index, or NULL after the last one. */
const struct layout *sluice_layout(int64_t index) {
    return index < (int64_t)(sizeof layouts / sizeof layouts[0]) ? &layouts[index] : NULL;
}
