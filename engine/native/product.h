/* Products of a step's rows with a packed weight.
 *
 * Included once per instruction set, after int8.h. A weight [out, in] is stored in panels of WIDTH outputs. For
 * each input (with bf16: for each pair of inputs, the operand of the processor's instruction) the panel's outputs
 * are adjacent. So a panel is read once, in order, and BLOCK_ROWS rows share each register of it. Weights of 8-bit
 * integers have panels and sums of their own (int8.h). Rows are the same for all panels, so they are brought into the form in
 * which they are multiplied once.
 *
 * While a panel is multiplied, as many bytes of `ahead`, which the thread reads next, are fetched to its caches.
 * The first block of rows fetches all of them, or the first two one half each, so that memory does not rest while
 * the second block computes.
 */

static INLINE void NAME(sums)(const float *panel, const float *in, int64_t stride, int64_t inner, const int rows,
                              const char *ahead, int64_t each, V (*sums)[COLUMNS]) {
    V sum[BLOCK_ROWS][COLUMNS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            sum[r][c] = (V){0};
    for (int64_t k = 0; k < inner; k++) {
        V weight[COLUMNS];
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            memcpy(&weight[c], panel + k * WIDTH + c * LANES, sizeof(V));
        NAME(fetch)(ahead, k, each);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int c = 0; c < COLUMNS; c++)
                sum[r][c] += in[r * stride + k] * weight[c];
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            sums[r][c] = sum[r][c];
}

#ifdef PAIRS /* the processor multiplies pairs of bf16 and sums them in float32 */
static INLINE void NAME(pair_sums)(const uint16_t *panel, const void *in, int64_t stride, int64_t inner,
                                   const int rows, const int wide, const char *ahead, int64_t each, V (*sums)[COLUMNS]) {
    const uint16_t *narrow = in;
    __m512 sum[BLOCK_ROWS][COLUMNS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            sum[r][c] = _mm512_setzero_ps();
#define FETCH(pair) NAME(fetch)(ahead, pair, each)
    if (wide)
        WIDE_SUMS(sum, rows, COLUMNS, (const float *)in, stride, panel, 2 * LANES, 2 * WIDTH, inner / 2, FETCH)
#undef FETCH
    for (int64_t k = 0; !wide && k < inner; k += 2) {
        __m512i weight[COLUMNS];
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            weight[c] = _mm512_loadu_si512(panel + k * WIDTH + c * 32);
        NAME(fetch)(ahead, k / 2, each);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, narrow + r * stride + k, sizeof pair);
            const __m512i both = _mm512_set1_epi32(pair);
#pragma GCC unroll 2
            for (int c = 0; c < COLUMNS; c++)
                sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh)both, (__m512bh)weight[c]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < COLUMNS; c++)
            sums[r][c] = (V)sum[r][c];
}
#define PAIR_SUMS(rows, wide) NAME(pair_sums)((const uint16_t *)panel, in, stride, inner, rows, wide, ahead, each, sums)
#define SUMS(rows) \
    !bf16             ? NAME(sums)((const float *)panel, (const float *)in, stride, inner, rows, ahead, each, sums) \
    : form == WIDENED ? PAIR_SUMS(rows, 1)                                                                          \
                      : PAIR_SUMS(rows, 0)
#else
#define SUMS(rows) NAME(sums)((const float *)panel, (const float *)in, stride, inner, rows, ahead, each, sums)
#endif

static __attribute__((noinline)) void NAME(block)(const void *panel, const void *in, int64_t stride, int64_t inner,
                                                  int rows, int bf16, enum form form, const char *ahead,
                                                  int64_t each, V (*sums)[COLUMNS]) {
    (void)bf16, (void)form;
    SWITCH_ROWS(SUMS)
}

/* Where a panel's outputs of a row are. */
static INLINE char *NAME(target)(const struct product *product, int64_t panel, int64_t row, void *out, int64_t out_stride, int bf16) {
    const int64_t first = panel * (product->kind == GATED ? WIDTH / 2 : WIDTH);
    return (char *)out + (bf16 && product->kind != SCORES ? 2 : 4) * (row * out_stride + first);
}

/* Asks for the lines that `rows` rows are stored to, which may be another thread's: the lock that takes the next panel waits for
 * all stores. */
static INLINE void NAME(claim)(const struct product *product, int64_t panel, int64_t row, int rows, void *out, int64_t out_stride,
                               int bf16) {
    for (int r = 0; r < rows; r++)
        __builtin_prefetch(NAME(target)(product, panel, row + r, out, out_stride, bf16), 1, 3);
}

/* Finishes one row's sums of one panel: bias, then the activation or the residual, each rounded as in the plain
 * model. Columns from `valid` on are padding. */
static INLINE void NAME(finish)(const struct product *product, V *sums, int64_t panel, int64_t row, void *out,
                                int64_t out_stride, int bf16) {
    const int gated = product->kind == GATED, registers = gated ? COLUMNS / 2 : COLUMNS, width = registers * LANES;
    const int64_t left = (gated ? product->outer / 2 : product->outer) - panel * width;
    const int valid = (int)(left < width ? left : width);
    const int narrow = bf16 && product->kind != SCORES;
    const size_t item = narrow ? 2 : 4, bytes = item * (size_t)valid;
    char *to = NAME(target)(product, panel, row, out, out_stride, bf16), whole[4 * WIDTH];
    for (int c = 0; c < COLUMNS; c++) {
        if (product->bias != NULL)
            sums[c] += *(const V *)(product->bias + panel * WIDTH + c * LANES);
        sums[c] = NAME(round)(sums[c], bf16);
    }
    if (gated) {
        for (int c = 0; c < registers; c++) {
            V silu = sums[c] / (1.0f + NAME(exp)(-sums[c]));
            sums[c] = NAME(round)(silu, bf16) * sums[c + registers];
        }
    } else if (product->kind == ADDED) {
        const void *before = to;
        if (valid < width) {
            memset(whole, 0, sizeof whole);
            before = memcpy(whole, to, bytes);
        }
        for (int c = 0; c < registers; c++)
            sums[c] += NAME(load)(before, c * LANES, narrow);
    }
    void *target = valid < width ? whole : to;
    for (int c = 0; c < registers; c++)
        NAME(store)(target, c * LANES, sums[c], narrow);
    if (valid < width)
        memcpy(to, whole, bytes);
}

static size_t NAME(panel_bytes)(const struct product *product, int bf16) {
    return product->int8 ? NAME(bytes_of_panel)(product->inner) : (bf16 ? 2 : 4) * (size_t)(WIDTH * product->inner);
}

/* The form in which a product multiplies so many rows. */
static enum form NAME(form)(const struct product *product, int64_t rows, int bf16) {
    (void)rows, (void)bf16;
    if (product->int8)
        return QUANTISED;
#ifdef TILES
    if (product->tile_rows > 0 && rows >= product->tile_rows)
        return GIVEN;
#endif
#ifdef PAIRS
    if (bf16 && widens)
        return WIDENED;
#endif
    return GIVEN;
}

/* Computes out[row, panel's columns] for rows [first, first + count) of `in`, which have the given form. `ahead`: what the thread
 * reads next. */
static void NAME(multiply)(const struct product *product, int64_t panel, const void *in, enum form form, int64_t first,
                           int64_t count, void *out, int64_t out_stride, int bf16, const char *ahead) {
    const int64_t inner = product->inner, stride = bytes_of_row(form, inner, bf16);
    const char *weight = (const char *)product->packed + (size_t)panel * NAME(panel_bytes)(product, bf16);
    const int64_t blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS, bytes = (int64_t)NAME(panel_bytes)(product, bf16);
    const int64_t whole = product->int8 ? WIDTH * GROUP : WIDTH * 4, each = blocks > 1 ? whole / 2 : whole;
#ifdef TILES
    if (product->tile_rows > 0 && count >= product->tile_rows && (bf16 || product->int8) && form != WIDENED) {
        V tiled[TILED_ROWS][COLUMNS];
        for (int64_t row = first, last = first + count; row < last; row += TILED_ROWS) {
            const int rows = (int)(last - row < TILED_ROWS ? last - row : TILED_ROWS), fetches = row == first;
            NAME(claim)(product, panel, row, rows, out, out_stride, bf16);
            NAME(configure_product)(rows);
            (product->int8 ? NAME(tiled_bytes) : NAME(tiled_pairs))(weight, (const char *)in + row * stride, stride, inner,
                                                                    rows, ahead, fetches, tiled);
            for (int r = 0; r < rows; r++)
                NAME(finish)(product, tiled[r], panel, row + r, out, out_stride, bf16);
        }
        return;
    }
#endif
    V sums[BLOCK_ROWS][COLUMNS];
    for (int64_t block = 0, row = first; block < blocks; block++) {
        const int rows = (int)((first + count - row + blocks - block - 1) / (blocks - block)); /* nearly equal sizes */
        const char *from = (const char *)in + row * stride, *fetched = block < 2 ? ahead + block * bytes / 2 : weight;
        NAME(claim)(product, panel, row, rows, out, out_stride, bf16);
        if (product->int8)
            NAME(byte_block)(weight, from, stride, inner, rows, fetched, each, sums);
        else
            NAME(block)(weight, from, stride / (bf16 && form == GIVEN ? 2 : 4), inner, rows, bf16, form, fetched, each, sums);
        for (int r = 0; r < rows; r++)
            NAME(finish)(product, sums[r], panel, row + r, out, out_stride, bf16);
        row += rows;
    }
}

/* Returns the weight row at a column of a panel; -1 for padding. A gated panel holds gates in its first half and as
 * many values in its second half. */
static int64_t NAME(row_at)(const struct product *product, int64_t panel, int64_t column) {
    if (product->kind != GATED) {
        const int64_t row = panel * WIDTH + column;
        return row < product->outer ? row : -1;
    }
    const int64_t half = WIDTH / 2, pairs = product->outer / 2, row = panel * half + column % half;
    return row < pairs ? row + (column < half ? 0 : pairs) : -1;
}

static int64_t NAME(panels)(const struct product *product) {
    return product->kind == GATED ? (product->outer / 2 + WIDTH / 2 - 1) / (WIDTH / 2)
                                  : (product->outer + WIDTH - 1) / WIDTH;
}

/* Fills `packed` [panels, in, WIDTH], or quantised panels, and `packed_bias` [panels, WIDTH] from weight [out, in] and bias [out] or NULL. */
static void NAME(pack)(const struct product *product, const void *weight, const void *bias, int bf16, void *packed,
                       float *packed_bias) {
    const int64_t inner = product->inner, group = bf16 ? 2 : 1, panels = NAME(panels)(product);
    for (int64_t panel = 0; panel < panels; panel++)
        for (int64_t column = 0; column < WIDTH; column++) {
            const int64_t row = NAME(row_at)(product, panel, column), base = panel * WIDTH * inner + column * group;
            if (bias != NULL)
                packed_bias[panel * WIDTH + column] = row < 0 ? 0.0f : NAME(get)(bias, row, bf16);
            if (product->int8) {
                const void *output = row < 0 ? NULL : (const char *)weight + (bf16 ? 2 : 4) * (size_t)(row * inner);
                NAME(pack_output)((char *)packed + (size_t)panel * NAME(panel_bytes)(product, bf16), column, output, inner,
                                  bf16);
                continue;
            }
            for (int64_t k = 0; k < inner; k++) {
                const int64_t to = base + k / group * group * WIDTH + k % group;
                if (bf16)
                    ((uint16_t *)packed)[to] = row < 0 ? 0 : ((const uint16_t *)weight)[row * inner + k];
                else
                    ((float *)packed)[to] = row < 0 ? 0.0f : ((const float *)weight)[row * inner + k];
            }
        }
}

/* Unpacks row `index` of a packed weight: the embedding, if it shares the head's weight. */
static void NAME(unpack)(const struct product *product, int64_t index, int bf16, void *out) {
    const int64_t inner = product->inner, group = bf16 ? 2 : 1;
    if (product->int8) {
        const char *panel = (const char *)product->packed + (size_t)(index / WIDTH) * NAME(bytes_of_panel)(inner);
        NAME(unpack_output)(panel, index % WIDTH, inner, bf16, out);
        return;
    }
    const int64_t base = index / WIDTH * WIDTH * inner + index % WIDTH * group;
    for (int64_t k = 0; k < inner; k += group) {
        if (bf16)
            memcpy((uint16_t *)out + k, (const uint16_t *)product->packed + base + k * WIDTH, 4);
        else
            ((float *)out)[k] = ((const float *)product->packed)[base + k * WIDTH];
    }
}

#undef SUMS
#undef PAIR_SUMS
#undef SWITCH_ROWS
#undef MORE_ROWS
