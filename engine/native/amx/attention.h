/* Scores and values of an attention tile by AMX tiles, up to TILED_QUERIES rows at once. Included by pair_tile.h if TILES is
 * defined.
 *
 * Transposed keys and paired values have the layout of a product's right side. Never run on a processor with AMX yet: tests
 * run it by emulated.h, and the engine times it before it is used.
 */

#define TILED_QUERIES (2 * TILE_ROWS)

/* Configures tiles 0, 1 and 6, 7 as sums, 2 and 3 as queries or weights, 4 and 5 as keys or values. The second of the first
 * two pairs, and 7, are for the rows beyond the sixteenth. */
static INLINE void NAME(configure_attention)(int rows) {
    const int low = rows < TILE_ROWS ? rows : TILE_ROWS, high = rows - low;
    const int of_tile[8] = {low, high, low, high, TILE_ROWS, TILE_ROWS, low, high};
    struct tile_shapes shapes = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shapes.rows[tile] = (uint8_t)of_tile[tile];
        shapes.bytes[tile] = of_tile[tile] == 0 ? 0 : TILE_BYTES;
    }
    TILE_CONFIGURE(&shapes);
}

/* Computes the scores of `rows` queries [rows, dim] with all keys, two groups at once: out [rows, GROUPS]. */
static INLINE void NAME(tiled_scores)(const uint16_t *query, const int dim, const uint16_t *keys, int rows, V *out) {
    const int second = rows > TILE_ROWS;
    NAME(configure_attention)(rows);
    for (int g = 0; g < GROUPS; g += 2) {
        TILE_ZERO(0);
        TILE_ZERO(6);
        if (second) {
            TILE_ZERO(1);
            TILE_ZERO(7);
        }
        for (int d = 0; d < dim; d += 32) {
            TILE_LOAD(4, keys + (g * dim + d) * LANES, TILE_BYTES);
            TILE_LOAD(5, keys + ((g + 1) * dim + d) * LANES, TILE_BYTES);
            TILE_LOAD(2, query + d, 2 * dim);
            TILE_DOT_PAIRS(0, 2, 4);
            TILE_DOT_PAIRS(6, 2, 5);
            if (second) {
                TILE_LOAD(3, query + TILE_ROWS * dim + d, 2 * dim);
                TILE_DOT_PAIRS(1, 3, 4);
                TILE_DOT_PAIRS(7, 3, 5);
            }
        }
        TILE_STORE(0, out + g, TILE_BYTES * GROUPS);
        TILE_STORE(6, out + g + 1, TILE_BYTES * GROUPS);
        if (second) {
            TILE_STORE(1, out + TILE_ROWS * GROUPS + g, TILE_BYTES * GROUPS);
            TILE_STORE(7, out + TILE_ROWS * GROUPS + g + 1, TILE_BYTES * GROUPS);
        }
    }
}

/* Adds the values of KEYS keys: weights [rows, KEYS], values [KEYS / 2, dim, 2], out [rows, dim]. The tiles are configured. */
static INLINE void NAME(tiled_values)(const uint16_t *weights, const uint16_t *values, int rows, const int dim, float *out) {
    const int second = rows > TILE_ROWS;
    for (int d = 0; d < dim; d += 2 * LANES) {
        float *low = out + d, *high = out + TILE_ROWS * dim + d;
        TILE_LOAD(0, low, 4 * dim);
        TILE_LOAD(6, low + LANES, 4 * dim);
        if (second) {
            TILE_LOAD(1, high, 4 * dim);
            TILE_LOAD(7, high + LANES, 4 * dim);
        }
        for (int j = 0; j < KEYS; j += 32) {
            TILE_LOAD(4, values + j * dim + 2 * d, 4 * dim);
            TILE_LOAD(5, values + j * dim + 2 * (d + LANES), 4 * dim);
            TILE_LOAD(2, weights + j, 2 * KEYS);
            TILE_DOT_PAIRS(0, 2, 4);
            TILE_DOT_PAIRS(6, 2, 5);
            if (second) {
                TILE_LOAD(3, weights + TILE_ROWS * KEYS + j, 2 * KEYS);
                TILE_DOT_PAIRS(1, 3, 4);
                TILE_DOT_PAIRS(7, 3, 5);
            }
        }
        TILE_STORE(0, low, 4 * dim);
        TILE_STORE(6, low + LANES, 4 * dim);
        if (second) {
            TILE_STORE(1, high, 4 * dim);
            TILE_STORE(7, high + LANES, 4 * dim);
        }
    }
}
