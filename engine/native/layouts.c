/* Sizes and offsets of the structs that Python mirrors (`backend/cpu/structs.py`), compared when the library is loaded. */
#include "decoder/decoder.h"

static const struct layout layouts[] = {
#define STRUCT(type) {#type, 0, (int64_t)sizeof(struct type)}
#define FIELD(type, field) {#type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field)}
    STRUCT(work), FIELD(work, rows), FIELD(work, tokens), FIELD(work, heads), FIELD(work, kv_heads), FIELD(work, dim),
    FIELD(work, block_size), FIELD(work, bf16), FIELD(work, threads), FIELD(work, row_first), FIELD(work, row_start),
    FIELD(work, table_first), FIELD(work, tables), FIELD(work, slots), FIELD(work, tile_rows),
    FIELD(work, int8_cache),
    STRUCT(layer), FIELD(layer, query), FIELD(layer, query_token), FIELD(layer, query_head), FIELD(layer, key),
    FIELD(layer, value), FIELD(layer, key_token), FIELD(layer, key_head), FIELD(layer, value_token),
    FIELD(layer, value_head), FIELD(layer, key_cache), FIELD(layer, value_cache), FIELD(layer, out),
    FIELD(layer, window), FIELD(layer, scale), FIELD(layer, softcap),
    STRUCT(product), FIELD(product, packed), FIELD(product, bias), FIELD(product, inner), FIELD(product, outer),
    FIELD(product, kind), FIELD(product, int8), FIELD(product, tile_rows),
    STRUCT(decoder_layer), FIELD(decoder_layer, query_key_value), FIELD(decoder_layer, output),
    FIELD(decoder_layer, gate_up), FIELD(decoder_layer, down), FIELD(decoder_layer, norm_before),
    FIELD(decoder_layer, norm_after), FIELD(decoder_layer, norm_query), FIELD(decoder_layer, norm_key),
    FIELD(decoder_layer, key_cache), FIELD(decoder_layer, value_cache), FIELD(decoder_layer, group),
    FIELD(decoder_layer, window), FIELD(decoder_layer, scale), FIELD(decoder_layer, softcap),
    STRUCT(decoder), FIELD(decoder, layers), FIELD(decoder, hidden), FIELD(decoder, inner), FIELD(decoder, vocab),
    FIELD(decoder, layer), FIELD(decoder, norm_last), FIELD(decoder, head), FIELD(decoder, epsilon),
    STRUCT(step), FIELD(step, ids), FIELD(step, hidden), FIELD(step, positions), FIELD(step, wanted),
    FIELD(step, count), FIELD(step, cosine), FIELD(step, sine), FIELD(step, scratch), FIELD(step, logits), FIELD(step, seconds),
    FIELD(step, share), FIELD(step, firm), FIELD(step, kept), FIELD(step, spent), FIELD(step, best),
    FIELD(step, highest),
};

/* Returns the entry at this index, or NULL after the last one. */
const struct layout *sluice_layout(int64_t index) {
    return index < (int64_t)(sizeof layouts / sizeof layouts[0]) ? &layouts[index] : NULL;
}
