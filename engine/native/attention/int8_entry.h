/* Keys and values of 8-bit integers. Included once per instruction set, before the loops that read them.
 *
 * An entry is one head of one token: its elements, then the scale that they are multiplied with (symmetric). So a token's
 * entries do not depend on other tokens, and zeroed memory is zeros. A head with an element that is not finite gets the
 * scale NaN.
 */

/* Writes one head to its entry. */
static void NAME(keep)(const void *in, int64_t dim, int bf16, void *entry) {
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
        memcpy((char *)entry + d, &part, sizeof part);
    }
    memcpy((char *)entry + dim, &scale, sizeof scale);
}

static INLINE float NAME(scale_of)(const char *entry, int dim) {
    float scale;
    memcpy(&scale, entry + dim, sizeof scale);
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

/* Elements [d, d + LANES) of an entry of the cache, of 8-bit integers or of the model's type. */
static INLINE V NAME(load_entry)(const char *entry, int d, const int dim, int bf16, int int8) {
    if (int8)
        return NAME(widen_bytes)(entry + d) * NAME(scale_of)(entry, dim);
    return NAME(load)(entry, d, bf16);
}
