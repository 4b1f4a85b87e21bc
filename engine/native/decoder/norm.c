/* Rows become the input of a product: normalised, and quantised where its weight is int8. With few rows each thread does all
 * of them for itself, which costs less than a barrier. */
#include "phases.h"

#define ROW_CHUNK 16 /* rows per item, where a row is little work */
#define QUANTISED_CHUNK 2 /* the same where they are quantised too */

static void norm_row(const struct pass *pass, const char *in, const void *weight, int64_t row, int64_t to, int int8) {
    const int64_t size = pass->decoder->hidden;
    const size_t bytes = row_bytes(pass, size);
    char *out = pass->normed + (size_t)to * bytes;
    pass->kernels->norm(in + (size_t)row * bytes, weight, pass->decoder->epsilon, size, out, (int)pass->work->bf16);
    if (int8)
        quantise_row(pass, out, size, to);
}

const void *decoder_norm(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                         const void *weight, int64_t rows, const struct product *product) {
    const int64_t own = own_rows(pass->decoder, rows), first = own * worker->thread, size = pass->decoder->hidden;
    const int int8 = (int)product->int8;
    for (int64_t row = 0; row < own; row++)
        norm_row(pass, in, weight, row, first + row, int8);
    if (own == 0) {
        const int64_t each = int8 ? QUANTISED_CHUNK : ROW_CHUNK;
        for (int64_t chunk; pool_take(next, (rows + each - 1) / each, &chunk);)
            for (int64_t row = chunk * each; row < rows && row < (chunk + 1) * each; row++)
                norm_row(pass, in, weight, row, row, int8);
        wait_for_others(worker);
    }
    return int8 ? pass->quantised + first * quantised_bytes(size) : pass->normed + (size_t)first * row_bytes(pass, size);
}

const void *decoder_quantise(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                             int64_t rows, const struct product *product) {
    const int64_t own = own_rows(pass->decoder, rows), first = own * worker->thread, size = product->inner;
    const size_t bytes = row_bytes(pass, size);
    if (!product->int8)
        return in;
    for (int64_t row = 0; row < own; row++)
        quantise_row(pass, in + (size_t)row * bytes, size, first + row);
    if (own == 0) {
        for (int64_t row; pool_take(next, rows, &row);)
            quantise_row(pass, in + (size_t)row * bytes, size, row);
        wait_for_others(worker);
    }
    return pass->quantised + first * quantised_bytes(size);
}
