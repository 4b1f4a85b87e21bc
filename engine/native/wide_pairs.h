/* Sums of pairs of bf16 by float32's multiplications. Included by section.h if PAIRS is defined.
 *
 * Intel's processors multiply 16 pairs of bf16 in two cycles (vdpbf16ps), and 32 floats in one: with operands that are widened
 * once for many sums, floats take half the time. A bf16 is the upper half of a float.
 */
#define SLOWER 2.4 /* from this ratio of times on, floats are faster: two instructions instead of one, and those that widen */

static inline double NAME(now)(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Computes `expression` for each of 16 sums, 500 times, none of which waits for another sum. */
#define REPEAT(expression)                         \
    for (int round = 0; round < 500; round++)      \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) { \
            sum[i] = expression;                   \
            __asm__ volatile("" : "+v"(sum[i]));   \
        }

/* Times both instructions; the fastest of several runs counts. Takes a tenth of a millisecond. */
static inline int NAME(pairs_are_slow)(void) {
    double least[2] = {1.0, 1.0};
    for (int run = 0; run < 16; run++) {
        const int pairs = run % 2;
        __m512 sum[16], in = _mm512_setzero_ps();
        for (int i = 0; i < 16; i++)
            sum[i] = _mm512_setzero_ps();
        const double begun = NAME(now)();
        if (pairs)
            REPEAT(_mm512_dpbf16_ps(sum[i], (__m512bh)in, (__m512bh)in))
        else
            REPEAT(_mm512_fmadd_ps(in, in, sum[i]))
        const double took = NAME(now)() - begun;
        least[pairs] = took < least[pairs] ? took : least[pairs];
    }
    return least[1] > SLOWER * least[0];
}
#undef REPEAT
#undef SLOWER

/* Adds to sum [rows][registers] the products of `in` [rows, stride] floats with `count` pairs of bf16: registers of 16 pairs, those of
 * the first one at `from`, `apart` elements apart, of the next one `next` elements behind. FETCH is called with each pair's number.
 * A pointer for every third row, from which the next two are reached by an index: one for each row would not stay in registers. */
#define WIDE_SUMS(sum, rows, registers, in, stride, from, apart, next, count, FETCH)                                              \
    {                                                                                                                             \
        const float *third_[4];                                                                                                   \
        _Pragma("GCC unroll 4") for (int t_ = 0; 3 * t_ < rows; t_++) third_[t_] = (in) + 3 * t_ * (stride);                      \
        for (int64_t p_ = 0; p_ < (count); p_++) {                                                                                \
            FETCH(p_);                                                                                                            \
            for (int odd_ = 0; odd_ < 2; odd_++) {                                                                                \
                __typeof__(sum[0][0]) wide_[registers];                                                                           \
                _Pragma("GCC unroll 4") for (int c_ = 0; c_ < registers; c_++) {                                                  \
                    const __m512i pairs_ = _mm512_loadu_si512((from) + p_ * (next) + c_ * (apart));                               \
                    const __m512i half_ =                                                                                         \
                        odd_ ? _mm512_and_si512(pairs_, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(pairs_, 16);               \
                    wide_[c_] = (__typeof__(sum[0][0]))half_;                                                                     \
                }                                                                                                                 \
                _Pragma("GCC unroll 12") for (int r_ = 0; r_ < rows; r_++)                                                        \
                    _Pragma("GCC unroll 4") for (int c_ = 0; c_ < registers; c_++)                                                \
                        sum[r_][c_] += third_[r_ / 3][r_ % 3 * (stride) + odd_] * wide_[c_];                                      \
            }                                                                                                                     \
            _Pragma("GCC unroll 4") for (int t_ = 0; 3 * t_ < rows; t_++) {                                                       \
                third_[t_] += 2;                                                                                                  \
                __asm__("" : "+r"(third_[t_]));                                                                                   \
            }                                                                                                                     \
        }                                                                                                                         \
    }
