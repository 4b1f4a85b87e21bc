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

/* Widens one entry to `out` [dim]. */
static INLINE void NAME(read_entry)(const char *head, int64_t at, int64_t size, const int dim, int keys, float *out) {
    const float scale = NAME(scale_of)(head, at, size, dim);
    const char *elements = head + at * dim;
    char gathered[MAX_DIM] ALIGNED;
    for (int d = 0; keys && d < dim; d += 4)
        memcpy(gathered + d, head + d * size + 4 * at, 4);
    for (int d = 0; d < dim; d += LANES)
        *(V *)(out + d) = NAME(widen_bytes)((keys ? gathered : elements) + d) * scale;
}

/* Reads one head's key and value [dim] of a token, of 8-bit integers or of the model's type. `place`: of the head in the caches,
 * see place_of_token; `at`: of the token in its block of `size`. */
static INLINE void NAME(read_both)(const struct layer *layer, int64_t place, int64_t at, int64_t size, const int dim, int bf16,
                                   int int8, float *key, float *value) {
    const char *keys = (const char *)layer->key_cache + place, *values = (const char *)layer->value_cache + place;
    if (int8) {
        NAME(read_entry)(keys, at, size, dim, 1, key);
        NAME(read_entry)(values, at, size, dim, 0, value);
        return;
    }
    for (int d = 0; d < dim; d += LANES) {
        *(V *)(key + d) = NAME(load)(keys, d, bf16);
        *(V *)(value + d) = NAME(load)(values, d, bf16);
    }
}
