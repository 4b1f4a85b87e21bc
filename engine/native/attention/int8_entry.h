/* Keys and values of 8-bit integers. Included once per instruction set, before the loops that read them.
 *
 * An entry is one head of one token: its elements, and the scale that they are multiplied with (symmetric). So a token's
 * entries do not depend on other tokens, and zeroed memory is zeros. A head with an element that is not finite gets the
 * scale NaN.
 *
 * A block has one head's entries together: their elements, then their scales [block_size]. Values are [block_size, dim]. Keys are
 * [dim / 4, block_size, 4], because products of bytes take quads of elements of adjacent keys: nothing is left to transpose.
 */

/* Writes one head of the token at `at` to its entry. `head`: that head in its block of `size` tokens. */
static void NAME(keep)(const void *in, int64_t dim, int bf16, int keys, char *head, int64_t at, int64_t size) {
    char elements[MAX_DIM] ALIGNED;
    V largest = {0};
    NAME(ints) within = (NAME(ints)){0} == 0;
    for (int64_t d = 0; d < dim; d += LANES) {
        const V magnitude = NAME(magnitude)(NAME(load)(in, d, bf16));
        largest = NAME(higher)(magnitude, largest);
        within &= magnitude <= FLT_MAX;
    }
    const float most = NAME(max)(largest);
    const int finite = NAME(bits)(~within) == 0, usable = finite && most > SMALLEST;
    const float inverse = usable ? 127.0f / most : 0.0f, scale = !finite ? NAN : usable ? most / 127.0f : 0.0f;
    for (int64_t d = 0; d < dim; d += LANES) {
        const V scaled = NAME(load)(in, d, bf16) * inverse + 12582912.0f; /* 1.5 · 2^23: rounds to an integer */
        NAME(ints) whole;
        memcpy(&whole, &scaled, sizeof whole);
        const NAME(octets) part = __builtin_convertvector(whole - 0x4B400000, NAME(octets));
        memcpy(elements + d, &part, sizeof part);
    }
    if (!keys)
        memcpy(head + at * dim, elements, (size_t)dim);
    else
        for (int64_t d = 0; d < dim; d += 4)
            memcpy(head + d * size + 4 * at, elements + d, 4);
    memcpy(head + dim * size + 4 * at, &scale, sizeof scale);
}

static INLINE float NAME(scale_of)(const char *head, int64_t at, int64_t size, int dim) {
    float scale;
    memcpy(&scale, head + dim * size + 4 * at, sizeof scale);
    return scale;
}

/* LANES bytes as floats. GCC 12 converts vectors of bytes one by one. */
static INLINE V NAME(widen_bytes)(const char *from) {
#if LANES == 16
    __m128i narrow;
    memcpy(&narrow, from, sizeof narrow);
    const NAME(ints) wide = (NAME(ints))_mm512_cvtepi8_epi32(narrow);
#elif LANES == 8
    int64_t narrow;
    memcpy(&narrow, from, sizeof narrow);
    const NAME(ints) wide = (NAME(ints))_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(narrow));
#else
    NAME(octets) narrow;
    memcpy(&narrow, from, sizeof narrow);
    const NAME(ints) wide = __builtin_convertvector(narrow, NAME(ints));
#endif
    return __builtin_convertvector(wide, V);
}

/* Widens a value to `out` [dim]. */
static INLINE void NAME(read_value)(const char *head, int64_t at, int64_t size, const int dim, float *out) {
    const float scale = NAME(scale_of)(head, at, size, dim);
    for (int d = 0; d < dim; d += LANES)
        *(V *)(out + d) = NAME(widen_bytes)(head + at * dim + d) * scale;
}

/* Widens the keys [at, at + count), at most LANES, to `out` [dim, count], whose rows are `stride` apart. If count is below LANES
 * and `stride` LANES, the other lanes become zeros. */
static INLINE void NAME(read_keys)(const char *head, int64_t at, int64_t size, int count, const int dim, const int64_t stride,
                                   float *out) {
    const size_t bytes = 4 * (size_t)(stride == LANES ? LANES : count);
    NAME(ints) quads = {0};
    V scales = {0};
    memcpy(&scales, head + dim * size + 4 * at, 4 * (size_t)count);
    for (int d = 0; d < dim; d += 4) {
        if (count == LANES)
            memcpy(&quads, head + d * size + 4 * at, sizeof quads);
        else
            memcpy(&quads, head + d * size + 4 * at, 4 * (size_t)count);
        for (int e = 0; e < 4; e++) {
            const V element = __builtin_convertvector(quads << (24 - 8 * e) >> 24, V) * scales;
            if (count == LANES)
                memcpy(out + (d + e) * stride, &element, sizeof element);
            else
                memcpy(out + (d + e) * stride, &element, bytes);
        }
    }
}
