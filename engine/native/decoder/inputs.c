/* Rows become the input of a product: normalised, and brought into its form. With few rows each thread does all of them for
 * itself, which costs less than a barrier. */
#include "phases.h"

#define ROW_CHUNK 16 /* rows per item, where a row is little work */
#define QUANTISED_CHUNK 2 /* the same where they are quantised too */

static void norm_row(const struct pass *pass, const char *in, const void *weight, int64_t row, int64_t to, enum form form) {
    const int64_t size = pass->decoder->hidden;
    const size_t bytes = row_bytes(pass, size);
    char *out = pass->normed + (size_t)to * bytes;
    pass->kernels->norm(in + (size_t)row * bytes, weight, pass->decoder->epsilon, size, out, (int)pass->work->bf16);
    if (form != GIVEN)
        prepare(pass, form, out, size, to);
}

const void *decoder_norm(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                         const void *weight, int64_t rows, const struct product *product) {
    const int64_t own = own_rows(pass->decoder, rows), first = own * worker->thread, size = pass->decoder->hidden;
    const enum form form = form_of(pass, product, rows);
    for (int64_t row = 0; row < own; row++)
        norm_row(pass, in, weight, row, first + row, form);
    if (own == 0) {
        const int64_t each = form == QUANTISED ? QUANTISED_CHUNK : ROW_CHUNK;
        for (int64_t chunk; pool_take(next, (rows + each - 1) / each, &chunk);)
            for (int64_t row = chunk * each; row < rows && row < (chunk + 1) * each; row++)
                norm_row(pass, in, weight, row, row, form);
        wait_for_others(worker);
    }
    return form == GIVEN ? pass->normed + (size_t)first * row_bytes(pass, size) : prepared_row(pass, form, size, first);
}

const void *decoder_prepare(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                            int64_t rows, const struct product *product) {
    const int64_t own = own_rows(pass->decoder, rows), first = own * worker->thread, size = product->inner;
    const size_t bytes = row_bytes(pass, size);
    const enum form form = form_of(pass, product, rows);
    if (form == GIVEN)
        return in;
    for (int64_t row = 0; row < own; row++)
        prepare(pass, form, in + (size_t)row * bytes, size, first + row);
    if (own == 0) {
        for (int64_t row; pool_take(next, rows, &row);)
            prepare(pass, form, in + (size_t)row * bytes, size, row);
        wait_for_others(worker);
    }
    return prepared_row(pass, form, size, first);
}
