/* Vector registers of floats: load, store, sum, maximum, e^x.
 *
 * Included once per instruction set by kernels.c, which defines NAME(x), to give each copy unique names, and LANES,
 * the floats per register: 16 with AVX-512, 8 with AVX2, else 4. The code uses GCC's vector types, so that the
 * compiler selects the instructions.
 */

typedef float NAME(floats) __attribute__((vector_size(4 * LANES), may_alias));
typedef uint32_t NAME(words) __attribute__((vector_size(4 * LANES)));
typedef int32_t NAME(ints) __attribute__((vector_size(4 * LANES)));
typedef uint16_t NAME(halves) __attribute__((vector_size(2 * LANES)));
typedef int8_t NAME(octets) __attribute__((vector_size(LANES)));
typedef float NAME(v4) __attribute__((vector_size(16)));
#define V NAME(floats)

static INLINE V NAME(load)(const void *from, int64_t index, int bf16) {
    V out;
    if (bf16) {
#if LANES == 16 /* GCC 12 would widen each half and join them */
        __m256i half;
        memcpy(&half, (const uint16_t *)from + index, sizeof half);
        const NAME(words) wide = (NAME(words))_mm512_cvtepu16_epi32(half) << 16;
#else
        NAME(halves) half;
        memcpy(&half, (const uint16_t *)from + index, sizeof half);
        const NAME(words) wide = __builtin_convertvector(half, NAME(words)) << 16;
#endif
        memcpy(&out, &wide, sizeof out);
    } else {
        memcpy(&out, (const float *)from + index, sizeof out);
    }
    return out;
}

static INLINE void NAME(store)(void *to, int64_t index, V in, int bf16) {
    if (!bf16) {
        memcpy((float *)to + index, &in, sizeof in);
        return;
    }
#ifdef PAIRS
    const __m256bh narrow = _mm512_cvtneps_pbh((__m512)in);
    memcpy((uint16_t *)to + index, &narrow, sizeof narrow);
    return;
#endif
    NAME(words) bits;
    memcpy(&bits, &in, sizeof bits);
    NAME(words) rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* to nearest even */
    NAME(words) isnan = (NAME(words))(in != in);
    rounded = (isnan & 0x7fc0) | (~isnan & rounded);
    NAME(halves) half = __builtin_convertvector(rounded, NAME(halves));
    memcpy((uint16_t *)to + index, &half, sizeof half);
}

static INLINE float NAME(sum)(V x) {
#if LANES == 16
    typedef float v8 __attribute__((vector_size(32)));
    v8 half = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    V half = x;
#endif
#if LANES >= 8
    NAME(v4) b = __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
#else
    NAME(v4) b = half;
#endif
    return (b[0] + b[1]) + (b[2] + b[3]);
}

static INLINE float NAME(max)(V x) {
#if LANES == 16
    typedef float v8 __attribute__((vector_size(32)));
    v8 low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
    v8 high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    v8 half = PICK(low > high, low, high);
#else
    V half = x;
#endif
#if LANES >= 8
    NAME(v4) left = __builtin_shufflevector(half, half, 0, 1, 2, 3);
    NAME(v4) right = __builtin_shufflevector(half, half, 4, 5, 6, 7);
    NAME(v4) b = PICK(left > right, left, right);
#else
    NAME(v4) b = half;
#endif
    float c = b[0] > b[1] ? b[0] : b[1], d = b[2] > b[3] ? b[2] : b[3];
    return c > d ? c : d;
}

/* Per lane the lower, or the higher, of two values; `b` if `a` is NaN. */
static INLINE V NAME(lower)(V a, V b) {
#if LANES == 16
    return (V)_mm512_min_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (V)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return PICK(a < b, a, b);
#endif
}

static INLINE V NAME(higher)(V a, V b) {
#if LANES == 16
    return (V)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (V)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return PICK(a > b, a, b);
#endif
}

static INLINE NAME(ints) NAME(clamp)(NAME(ints) x, NAME(ints) lowest, NAME(ints) highest) {
#if LANES == 16
    return (NAME(ints))_mm512_min_epi32(_mm512_max_epi32((__m512i)x, (__m512i)lowest), (__m512i)highest);
#elif LANES == 8
    return (NAME(ints))_mm256_min_epi32(_mm256_max_epi32((__m256i)x, (__m256i)lowest), (__m256i)highest);
#else
    x = PICK(x < lowest, lowest, x);
    return PICK(x > highest, highest, x);
#endif
}

static INLINE V NAME(magnitude)(V x) {
    NAME(ints) bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffff;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A bit for each lane of a comparison. */
static INLINE uint32_t NAME(bits)(NAME(ints) mask) {
#if LANES == 16
    return _mm512_movepi32_mask((__m512i)mask);
#elif LANES == 8
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#else
    uint32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++)
        bits |= (uint32_t)(mask[lane] & 1) << lane;
    return bits;
#endif
}

/* e^x for x of at most 88, by range reduction and a polynomial of degree 6 (Cephes expf); the error is about 2 ulp.
 * Below -87 the result is 0. NaN stays NaN. */
static INLINE V NAME(exp_to_88)(V x) {
    const V zero = {0}, round = zero + 12582912.0f; /* 1.5 · 2²³: a sum with it ends with the nearest integer */
    const V shifted = x * 1.44269504088896341f + round, n = shifted - round;
    const V r = x - n * 0.693359375f + n * 2.12194440e-4f;
    V p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    NAME(ints) bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (127 << 23);
    V power;
    memcpy(&power, &bits, sizeof power);
    return PICK(x < -87.0f, zero, p * power);
}

/* The same for every x: above 88 it is e^88. */
static INLINE V NAME(exp)(V x) { return NAME(exp_to_88)(PICK(x > 88.0f, (V){0} + 88.0f, x)); }

/* Scalar access and rounding to the tensor's type, for remainders that do not fill a register. */
static INLINE float NAME(get)(const void *from, int64_t index, int bf16) {
    if (!bf16)
        return ((const float *)from)[index];
    uint32_t bits = (uint32_t)((const uint16_t *)from)[index] << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static INLINE float NAME(rounded)(float in, int bf16) {
    if (!bf16)
        return in;
    uint32_t bits;
    memcpy(&bits, &in, sizeof bits);
    bits = in != in ? 0x7fc00000u : (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u; /* to nearest even */
    memcpy(&in, &bits, sizeof in);
    return in;
}

static INLINE void NAME(put)(void *to, int64_t index, float in, int bf16) {
    uint32_t bits;
    in = NAME(rounded)(in, bf16);
    memcpy(&bits, &in, sizeof bits);
    if (bf16)
        ((uint16_t *)to)[index] = (uint16_t)(bits >> 16);
    else
        ((float *)to)[index] = in;
}

static INLINE V NAME(round)(V in, int bf16) {
    if (!bf16)
        return in;
#ifdef PAIRS
    return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)in)), 16);
#endif
    NAME(words) bits;
    memcpy(&bits, &in, sizeof bits);
    NAME(words) isnan = (NAME(words))(in != in);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    bits = (isnan & 0x7fc00000u) | (~isnan & bits);
    memcpy(&in, &bits, sizeof in);
    return in;
}
