/* Products of a step's rows with a weight of 8-bit integers.
 *
 * Included once per instruction set, before product.h. Each output of the weight has a scale (symmetric), and each
 * row has a scale and an integer that stands for 0 (asymmetric, computed at run time). A few outliers would make the
 * scale coarse: up to OUTLIERS values beyond OUTLYING mean magnitudes keep what 8 bits do not hold as an excess.
 * out = (Σ (row - zero) · weight + Σ excess · weight) · row scale · output scale. The sums are exact, because
 * (255 · MAX_INNER + LARGEST · OUTLIERS) · 127 fits 32 bits, so a row's result does not depend on the other rows.
 *
 * A panel holds the outputs' scales, then the sums of their weights, then the weights in groups of GROUP inputs. With
 * QUADS the processor multiplies unsigned with signed bytes, and zero · Σ weight is subtracted. Otherwise a row is
 * stored in 16 bits without its zero, and the processor multiplies pairs.
 */

#ifdef QUADS
#define GROUP 4
#define UNSIGNED 1
typedef uint8_t NAME(element);
#else
#define GROUP 2
#define UNSIGNED 0
typedef int16_t NAME(element);
#endif
typedef NAME(element) NAME(elements) __attribute__((vector_size(LANES * sizeof(NAME(element)))));

#ifdef QUADS
static INLINE NAME(ints) NAME(widen)(const int8_t *weights) { return (NAME(ints))_mm512_loadu_si512(weights); }

static INLINE NAME(ints) NAME(dot)(NAME(ints) sum, NAME(ints) row, NAME(ints) weights) {
    return (NAME(ints))_mm512_dpbusd_epi32((__m512i)sum, (__m512i)row, (__m512i)weights);
}
#else
/* Returns 2 · LANES weights in 16 bits each. */
static INLINE NAME(ints) NAME(widen)(const int8_t *weights) {
    typedef int8_t bytes __attribute__((vector_size(2 * LANES)));
    typedef int16_t shorts __attribute__((vector_size(4 * LANES)));
    bytes narrow;
    memcpy(&narrow, weights, sizeof narrow);
    return (NAME(ints))__builtin_convertvector(narrow, shorts);
}

static INLINE NAME(ints) NAME(dot)(NAME(ints) sum, NAME(ints) row, NAME(ints) weights) {
#if LANES == 16
    return sum + (NAME(ints))_mm512_madd_epi16((__m512i)row, (__m512i)weights);
#elif LANES == 8
    return sum + (NAME(ints))_mm256_madd_epi16((__m256i)row, (__m256i)weights);
#else
    return sum + (row << 16 >> 16) * (weights << 16 >> 16) + (row >> 16) * (weights >> 16);
#endif
}
#endif

/* Bytes of a panel: scales, sums and weights. */
static INLINE size_t NAME(bytes_of_panel)(int64_t inner) {
    return (size_t)WIDTH * (sizeof(float) + sizeof(int32_t) + (size_t)((inner + 3) / 4 * 4));
}

/* Bytes from a panel's first weight to the first one of an input. The other outputs' are GROUP bytes apart. Registers that are
 * read there reach up to GROUP - 1 bytes behind a panel. */
static INLINE int32_t NAME(place_of_input)(int32_t index) { return index / GROUP * GROUP * WIDTH + index % GROUP; }

/* What a row is quantised with, and its range without the outliers. */
struct NAME(range) {
    float least, most, largest;
    int finite;
    struct quantised_row row;
    float outlying[OUTLIERS];
};

static INLINE void NAME(extend)(struct NAME(range) *range, float least, float most) {
    range->least = least < range->least ? least : range->least;
    range->most = most > range->most ? most : range->most;
}

/* Keeps the OUTLIERS largest values, in descending order; the value that is displaced extends the range. */
static void NAME(keep_outlier)(struct NAME(range) *range, int32_t index, float value) {
    int place = range->row.outliers;
    while (place > 0 && fabsf(range->outlying[place - 1]) < fabsf(value))
        place--;
    if (range->row.outliers < OUTLIERS) {
        range->row.outliers++;
    } else {
        const float displaced = place < OUTLIERS ? range->outlying[OUTLIERS - 1] : value;
        NAME(extend)(range, displaced, displaced);
    }
    for (int i = range->row.outliers - 1; i > place; i--)
        range->outlying[i] = range->outlying[i - 1], range->row.outlier[i] = range->row.outlier[i - 1];
    if (place < OUTLIERS)
        range->outlying[place] = value, range->row.outlier[place].place = NAME(place_of_input)(index);
}

static struct NAME(range) NAME(range_of)(const void *in, int64_t size, int bf16) {
    struct NAME(range) range = {.finite = 1};
    V low = {0}, high = {0}, magnitudes = {0};
    NAME(ints) finite = (NAME(ints)){0} == 0;
    float sum = 0.0f;
    int64_t whole = size / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        const V part = NAME(load)(in, i, bf16), magnitude = NAME(magnitude)(part);
        low = NAME(lower)(part, low), high = NAME(higher)(part, high);
        magnitudes += magnitude;
        finite &= magnitude <= FLT_MAX;
    }
    range.finite = NAME(bits)(~finite) == 0;
    for (int64_t i = whole; i < size; i++) {
        const float value = NAME(get)(in, i, bf16);
        NAME(extend)(&range, value, value);
        range.finite &= value - value == 0.0f;
        sum += fabsf(value);
    }
    NAME(extend)(&range, -NAME(max)(-low), NAME(max)(high));
    range.largest = range.most > -range.least ? range.most : -range.least;
    const float bound = OUTLYING * (NAME(sum)(magnitudes) + sum) / (float)size;
    if (!range.finite || !(range.largest > bound))
        return range;
    range.least = range.most = 0.0f; /* of the values within the bound, and of displaced ones */
    low = high = (V){0};
    for (int64_t i = 0; i < whole; i += LANES) {
        const V part = NAME(load)(in, i, bf16), inside = PICK(NAME(magnitude)(part) > bound, (V){0}, part);
        low = NAME(lower)(inside, low), high = NAME(higher)(inside, high);
    }
    for (int64_t i = 0; i < whole; i += LANES) /* a loop of its own: beside calls, the registers above would be in memory */
        for (uint32_t bits = NAME(bits)(NAME(magnitude)(NAME(load)(in, i, bf16)) > bound); bits; bits &= bits - 1) {
            const int64_t at = i + __builtin_ctz(bits);
            NAME(keep_outlier)(&range, (int32_t)at, NAME(get)(in, at, bf16));
        }
    for (int64_t i = whole; i < size; i++) {
        const float value = NAME(get)(in, i, bf16);
        if (fabsf(value) > bound)
            NAME(keep_outlier)(&range, (int32_t)i, value);
        else
            NAME(extend)(&range, value, value);
    }
    NAME(extend)(&range, -NAME(max)(-low), NAME(max)(high));
    return range;
}

/* Quantises a row: its header, and ROW_HEADER bytes later the elements. A row with a value that is not finite gets the
 * scale NaN, so that all its results are NaN. */
static void NAME(quantise)(const void *in, int64_t size, int bf16, void *out) {
    struct NAME(range) range = NAME(range_of)(in, size, bf16);
    const float fine = range.most / 255.0f - range.least / 255.0f, coarse = range.largest / LARGEST;
    const float step = fine > coarse ? fine : coarse;
    const int usable = range.finite && step > SMALLEST; /* below it, 1 / step overflows: the row counts as zeros */
    const float inverse = usable ? 1.0f / step : 0.0f;
    const int32_t zero = (int32_t)rintf(-range.least * inverse), stored = UNSIGNED ? zero : 0;
    NAME(element) *to = (NAME(element) *)((char *)out + ROW_HEADER);
    range.row.scale = range.finite ? usable ? step : 0.0f : NAN;
    range.row.zero = stored;
    for (int i = 0; i < range.row.outliers; i++) {
        const int32_t whole = (int32_t)rintf(range.outlying[i] * inverse);
        range.row.outlier[i].excess = whole - (whole < -zero ? -zero : whole > 255 - zero ? 255 - zero : whole);
    }
    memcpy(out, &range.row, sizeof range.row);
    if (!usable) {
        memset(to, 0, sizeof *to * (size_t)((size + 3) / 4 * 4));
        return;
    }
    const NAME(ints) lowest = (NAME(ints)){0} - zero, highest = lowest + 255;
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const V scaled = NAME(load)(in, i, bf16) * inverse + 12582912.0f; /* 1.5 · 2^23: rounds to an integer */
        NAME(ints) whole;
        memcpy(&whole, &scaled, sizeof whole);
        whole = NAME(clamp)(whole - 0x4B400000, lowest, highest);
        const NAME(elements) part = __builtin_convertvector(whole + stored, NAME(elements));
        memcpy(to + i, &part, sizeof part);
    }
    for (; i < size; i++) {
        const int32_t whole = (int32_t)rintf(NAME(get)(in, i, bf16) * inverse);
        to[i] = (NAME(element))((whole < -zero ? -zero : whole > 255 - zero ? 255 - zero : whole) + stored);
    }
    for (; i % 4; i++)
        to[i] = 0; /* its weight is 0 */
}

/* Fetches what a loop reads later and reads once: `each` bytes in each iteration `at`, at most two lines. Without the hint
 * that they are read once, they would displace what the host has in the caches; Intel's processors take it to mean past level
 * 2, and a panel is longer than level 1. */
static INLINE void NAME(fetch)(const char *ahead, int64_t at, int64_t each) {
    const char *first = ahead + at * each, *second = first + each / 2;
    if (fetches_to_level_2) {
        __builtin_prefetch(first, 0, 2);
        if (WIDTH * 4 > 64)
            __builtin_prefetch(second, 0, 2);
    } else {
        __builtin_prefetch(first, 0, 0);
        if (WIDTH * 4 > 64)
            __builtin_prefetch(second, 0, 0);
    }
}

/* Calls SUMS with a constant number of rows. */
#if LANES == 16
#define MORE_ROWS(SUMS) \
    case 6: SUMS(6); break; \
    case 7: SUMS(7); break; \
    case 8: SUMS(8); break; \
    case 9: SUMS(9); break; \
    case 10: SUMS(10); break; \
    case 11: SUMS(11); break;
#else
#define MORE_ROWS(SUMS)
#endif
#define SWITCH_ROWS(SUMS) \
    switch (rows) { \
    case 1: SUMS(1); break; \
    case 2: SUMS(2); break; \
    case 3: SUMS(3); break; \
    case 4: SUMS(4); break; \
    case 5: SUMS(5); break; \
    MORE_ROWS(SUMS) \
    default: SUMS(BLOCK_ROWS); break; \
    }

/* Turns a quantised row's integer sums with a panel's outputs into floats: adds the outliers, and applies zero and scales. */
static INLINE void NAME(scale_sums)(const char *panel, const char *in, const NAME(ints) *whole, V *sums) {
    const float *scales = (const float *)panel;
    const int32_t *totals = (const int32_t *)(scales + WIDTH);
    const int8_t *weights = (const int8_t *)(totals + WIDTH);
    const struct quantised_row *row = (const struct quantised_row *)in;
    const NAME(ints) zeros = {0}, ones = zeros + 1; /* the first of each group's inputs */
    NAME(ints) sum[COLUMNS];
#pragma GCC unroll 2
    for (int c = 0; c < COLUMNS; c++)
        sum[c] = whole[c];
    for (int i = 0; i < row->outliers; i++) {
        const int8_t *weight = weights + row->outlier[i].place;
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            sum[c] += row->outlier[i].excess * NAME(dot)(zeros, ones, NAME(widen)(weight + c * LANES * GROUP));
    }
#pragma GCC unroll 2
    for (int c = 0; c < COLUMNS; c++) {
        V scale;
        NAME(ints) total;
        memcpy(&scale, scales + c * LANES, sizeof scale);
        memcpy(&total, totals + c * LANES, sizeof total);
        sums[c] = __builtin_convertvector(sum[c] - row->zero * total, V) * scale * row->scale;
    }
}

/* Computes the sums of a panel with `rows` quantised rows, `stride` bytes apart. */
static INLINE void NAME(byte_sums)(const char *panel, const char *in, int64_t stride, int64_t inner, const int rows,
                                   const char *ahead, int64_t each, V (*sums)[COLUMNS]) {
    const int8_t *weights = (const int8_t *)(panel + WIDTH * (sizeof(float) + sizeof(int32_t)));
    NAME(ints) sum[BLOCK_ROWS][COLUMNS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            sum[r][c] = (NAME(ints)){0};
    for (int64_t k = 0; k < inner; k += GROUP) {
        NAME(ints) weight[COLUMNS];
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            weight[c] = NAME(widen)(weights + k * WIDTH + c * LANES * GROUP);
        NAME(fetch)(ahead, k / GROUP, each);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            int32_t group;
            memcpy(&group, in + r * stride + ROW_HEADER + k * (int64_t)sizeof(NAME(element)), sizeof group);
            const NAME(ints) both = (NAME(ints)){0} + group;
#pragma GCC unroll 2
            for (int c = 0; c < COLUMNS; c++)
                sum[r][c] = NAME(dot)(sum[r][c], both, weight[c]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        NAME(scale_sums)(panel, in + r * stride, sum[r], sums[r]);
}

#define SUMS(rows) NAME(byte_sums)(panel, in, stride, inner, rows, ahead, each, sums)
static __attribute__((noinline)) void NAME(byte_block)(const void *panel, const void *in, int64_t stride,
                                                       int64_t inner, int rows, const char *ahead, int64_t each,
                                                       V (*sums)[COLUMNS]) {
    SWITCH_ROWS(SUMS)
}
#undef SUMS

/* Quantises one output of a weight, or zeros for NULL, to a column of a panel. An output with a weight that is not
 * finite gets the scale NaN. */
static void NAME(pack_output)(char *panel, int64_t column, const void *weight, int64_t inner, int bf16) {
    float *scales = (float *)panel, largest = 0.0f, scale = 0.0f, inverse = 0.0f;
    int32_t *totals = (int32_t *)(scales + WIDTH), total = 0;
    int8_t *weights = (int8_t *)(totals + WIDTH);
    int finite = 1;
    for (int64_t k = 0; weight != NULL && k < inner; k++) {
        const float magnitude = fabsf(NAME(get)(weight, k, bf16));
        largest = magnitude > largest ? magnitude : largest;
        finite &= magnitude - magnitude == 0.0f;
    }
    if (!finite)
        scale = NAN;
    else if (largest > SMALLEST)
        scale = largest / 127.0f, inverse = 127.0f / largest;
    for (int64_t k = 0; k < (inner + 3) / 4 * 4; k++) {
        const int valid = finite && weight != NULL && k < inner;
        const int8_t value = valid ? (int8_t)rintf(NAME(get)(weight, k, bf16) * inverse) : 0;
        weights[k / GROUP * GROUP * WIDTH + column * GROUP + k % GROUP] = value;
        total += value;
    }
    scales[column] = scale;
    totals[column] = total;
}

/* Unpacks an output's weights. */
static void NAME(unpack_output)(const char *panel, int64_t column, int64_t inner, int bf16, void *out) {
    const float scale = ((const float *)panel)[column];
    const int8_t *weights = (const int8_t *)(panel + WIDTH * (sizeof(float) + sizeof(int32_t)));
    for (int64_t k = 0; k < inner; k++)
        NAME(put)(out, k, scale * weights[k / GROUP * GROUP * WIDTH + column * GROUP + k % GROUP], bf16);
}
