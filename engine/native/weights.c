/* Weights packed for a level, and products of them one by one. */
#include "kernels.h"

/* Returns the number of outputs that a weight's panels hold, including padding. */
int64_t sluice_packed_rows(const struct product *product, int level) {
    const struct kernels *kernels = kernels_of(level);
    return kernels->panels(product) * kernels->width;
}

/* Returns the bytes of a packed weight. Behind the last outputs of an int8 panel lie bytes that an outlier's product reads. */
int64_t sluice_packed_bytes(const struct product *product, int bf16, int level) {
    const struct kernels *kernels = kernels_of(level);
    return kernels->panels(product) * (int64_t)kernels->panel_bytes(product, bf16) + (product->int8 ? LINE : 0);
}

/* Packs weight [outer, inner] and bias [outer] or NULL into `packed`, of sluice_packed_bytes, and `packed_bias`, with
 * sluice_packed_rows values. The weight is quantised if the product is int8. */
void sluice_pack(const struct product *product, const void *weight, const void *bias, int bf16, void *packed,
                 float *packed_bias, int level) {
    kernels_of(level)->pack(product, weight, bias, bf16, packed, packed_bias);
}

/* Brings rows [rows, inner] into the product's form as the decoder does, and multiplies them: `prepared` has room for
 * sluice_prepared_bytes each. For tests and measurements of single products. */
int64_t sluice_prepared_bytes(int64_t inner) {
    const int64_t quantised = bytes_of_row(QUANTISED, inner, 1), widened = bytes_of_row(WIDENED, inner, 1);
    return quantised > widened ? quantised : widened;
}

void sluice_multiply(const struct product *product, const void *in, int64_t rows, void *out, int64_t stride, int bf16,
                     void *prepared, int level) {
    const struct kernels *kernels = kernels_of(level);
    const enum form form = kernels->form(product, rows, bf16);
    for (int64_t row = 0; form != GIVEN && row < rows; row++)
        prepare_row(kernels, form, (const char *)in + row * bytes_of_row(GIVEN, product->inner, bf16), product->inner, bf16,
                    (char *)prepared + row * bytes_of_row(form, product->inner, bf16));
    for (int64_t panel = 0; panel < kernels->panels(product); panel++)
        kernels->multiply(product, panel, form == GIVEN ? in : prepared, form, 0, rows, out, stride, bf16, product->packed);
    if (kernels->leave != NULL)
        kernels->leave();
}
