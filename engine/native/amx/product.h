/* Sums of a product's rows with a panel by AMX tiles: bf16, and quantised rows. Included by section.h, after int8.h.
 *
 * A step of the inner loop takes 64 bytes of each row, 32 bf16 or 64 quantised elements: two tiles of rows and the two of
 * the panel's outputs give four products, whose sums stay in four tiles. What is left of the inputs is added by AVX-512.
 * Never run on a processor with AMX yet: tests run it by emulated.h, and the engine times it before it is used.
 */

#define TILED_ROWS (2 * TILE_ROWS) /* of a block */

/* Configures tiles 0-3 as sums, 4 and 5 as rows, 6 and 7 as the panel's. The second tile of rows has no rows if rows ≤ 16. */
static INLINE void NAME(configure_product)(int rows) {
    const int low = rows < TILE_ROWS ? rows : TILE_ROWS, high = rows - low;
    struct tile_shapes shapes = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shapes.rows[tile] = (uint8_t)(tile > 5 ? TILE_ROWS : tile / 2 % 2 || tile == 5 ? high : low);
        shapes.bytes[tile] = shapes.rows[tile] ? TILE_BYTES : 0;
    }
    TILE_CONFIGURE(&shapes);
}

/* Adds whole steps of 64 bytes per row to sums [rows, WIDTH]. `panel`: the first step's tiles. `bytes`: of a row. */
#define TILE_SUMS(dot)                                                           \
    do {                                                                         \
        TILE_ZERO(0);                                                            \
        TILE_ZERO(1);                                                            \
        if (rows > TILE_ROWS) {                                                  \
            TILE_ZERO(2);                                                        \
            TILE_ZERO(3);                                                        \
        }                                                                        \
        for (int64_t at = 0; at + TILE_BYTES <= bytes; at += TILE_BYTES) {       \
            for (int line = 0; fetches && line < each; line += 64)               \
                __builtin_prefetch(ahead + at / TILE_BYTES * each + line, 0, 2); \
            TILE_LOAD(6, panel + at * WIDTH, 4 * WIDTH);                         \
            TILE_LOAD(7, panel + at * WIDTH + TILE_BYTES, 4 * WIDTH);            \
            TILE_LOAD(4, in + at, stride);                                       \
            dot(0, 4, 6);                                                        \
            dot(1, 4, 7);                                                        \
            if (rows > TILE_ROWS) {                                              \
                TILE_LOAD(5, in + TILE_ROWS * stride + at, stride);              \
                dot(2, 5, 6);                                                    \
                dot(3, 5, 7);                                                    \
            }                                                                    \
        }                                                                        \
        TILE_STORE(0, to, 4 * WIDTH);                                            \
        TILE_STORE(1, to + TILE_BYTES, 4 * WIDTH);                               \
        if (rows > TILE_ROWS) {                                                  \
            TILE_STORE(2, to + TILE_ROWS * 4 * WIDTH, 4 * WIDTH);                \
            TILE_STORE(3, to + TILE_ROWS * 4 * WIDTH + TILE_BYTES, 4 * WIDTH);   \
        }                                                                        \
    } while (0)

/* Computes the sums of up to TILED_ROWS rows of bf16, `stride` bytes apart. `fetches`: whether `ahead` is fetched. */
static __attribute__((noinline)) void NAME(tiled_pairs)(const char *panel, const char *in, int64_t stride, int64_t inner,
                                                        int rows, const char *ahead, int fetches, V (*sums)[COLUMNS]) {
    const int64_t bytes = 2 * inner, each = TILE_BYTES * WIDTH;
    char *to = (char *)sums;
    TILE_SUMS(TILE_DOT_PAIRS);
    for (int64_t k = inner / 32 * 32; k < inner; k += 2)
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, in + r * stride + 2 * k, sizeof pair);
            for (int c = 0; c < COLUMNS; c++) {
                const __m512i weight = _mm512_loadu_si512(panel + 2 * (k * WIDTH + c * 32));
                sums[r][c] = (V)_mm512_dpbf16_ps((__m512)sums[r][c], (__m512bh)_mm512_set1_epi32(pair), (__m512bh)weight);
            }
        }
}

/* Computes the sums of up to TILED_ROWS quantised rows, `stride` bytes apart. */
static __attribute__((noinline)) void NAME(tiled_bytes)(const char *quantised_panel, const char *quantised, int64_t stride,
                                                        int64_t inner, int rows, const char *ahead, int fetches,
                                                        V (*sums)[COLUMNS]) {
    const char *panel = quantised_panel + WIDTH * (sizeof(float) + sizeof(int32_t)), *in = quantised + ROW_HEADER;
    const int64_t bytes = (inner + 3) / 4 * 4, each = TILE_BYTES * WIDTH;
    NAME(ints) whole[TILED_ROWS][COLUMNS];
    char *to = (char *)whole;
    TILE_SUMS(TILE_DOT_BYTES);
    for (int r = 0; r < rows; r++) {
        const char *row = in + r * stride;
        for (int64_t k = bytes / TILE_BYTES * TILE_BYTES; k < bytes; k += GROUP) {
            int32_t group;
            memcpy(&group, row + k, sizeof group);
            for (int c = 0; c < COLUMNS; c++)
                whole[r][c] = NAME(dot)(whole[r][c], (NAME(ints)){0} + group,
                                        NAME(widen)((const int8_t *)panel + k * WIDTH + c * LANES * GROUP));
        }
        NAME(scale_sums)(quantised_panel, quantised + r * stride, whole[r], sums[r]);
    }
}

#undef TILE_SUMS

static void NAME(leave)(void) { TILE_RELEASE(); }
