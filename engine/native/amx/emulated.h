/* AMX's tile registers in memory, for tests on processors without AMX. Included by tiles.h.
 *
 * The shapes are checked as the processor checks them; a product that it would refuse aborts the process. Sums are made in
 * the order of the inputs, which may differ from the processor's in the last bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread struct {
    struct tile_shapes shapes;
    uint8_t data[8][TILE_ROWS][TILE_BYTES];
} emulated;

static void emulated_check(int allowed, const char *what) {
    if (!allowed) {
        fprintf(stderr, "AMX would refuse this: %s\n", what);
        abort();
    }
}

static void emulated_configure(const struct tile_shapes *shapes) {
    emulated_check(shapes->palette == 1 && shapes->start_row == 0, "palette or first row");
    for (int tile = 0; tile < 16; tile++) {
        const int rows = shapes->rows[tile], bytes = shapes->bytes[tile];
        emulated_check(rows <= TILE_ROWS && bytes <= TILE_BYTES, "a tile is too large");
        emulated_check((rows == 0) == (bytes == 0), "a tile has rows or bytes only");
        emulated_check(tile < 8 || rows == 0, "there are eight tiles");
    }
    memset(&emulated, 0, sizeof emulated);
    emulated.shapes = *shapes;
}

static void emulated_use(int tile) { emulated_check(emulated.shapes.rows[tile] > 0, "a tile has no shape"); }

static void emulated_zero(int tile) {
    emulated_use(tile);
    memset(emulated.data[tile], 0, sizeof emulated.data[tile]);
}

static void emulated_load(int tile, const void *from, int64_t stride) {
    emulated_zero(tile);
    for (int row = 0; row < emulated.shapes.rows[tile]; row++)
        memcpy(emulated.data[tile][row], (const char *)from + row * stride, emulated.shapes.bytes[tile]);
}

static void emulated_store(int tile, void *to, int64_t stride) {
    emulated_use(tile);
    for (int row = 0; row < emulated.shapes.rows[tile]; row++)
        memcpy((char *)to + row * stride, emulated.data[tile][row], emulated.shapes.bytes[tile]);
}

/* Checks that c [rows, columns] may take the product of a and b, whose rows are groups of 4 bytes per output. */
static void emulated_agree(int c, int a, int b) {
    const struct tile_shapes *shapes = &emulated.shapes;
    emulated_use(c), emulated_use(a), emulated_use(b);
    emulated_check(c != a && c != b && a != b, "a tile is an operand twice");
    emulated_check(shapes->rows[c] == shapes->rows[a] && shapes->bytes[c] == shapes->bytes[b] &&
                       shapes->bytes[a] == 4 * shapes->rows[b],
                   "the shapes of a product do not agree");
}

static float emulated_bf16(const uint8_t *from) {
    const uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void emulated_dot_pairs(int c, int a, int b) {
    emulated_agree(c, a, b);
    for (int row = 0; row < emulated.shapes.rows[c]; row++)
        for (int k = 0; k < emulated.shapes.rows[b]; k++)
            for (int column = 0; column < emulated.shapes.bytes[c] / 4; column++) {
                const uint8_t *in = &emulated.data[a][row][4 * k], *weight = &emulated.data[b][k][4 * column];
                float sum;
                memcpy(&sum, &emulated.data[c][row][4 * column], sizeof sum);
                sum += emulated_bf16(in) * emulated_bf16(weight) + emulated_bf16(in + 2) * emulated_bf16(weight + 2);
                memcpy(&emulated.data[c][row][4 * column], &sum, sizeof sum);
            }
}

static void emulated_dot_bytes(int c, int a, int b) {
    emulated_agree(c, a, b);
    for (int row = 0; row < emulated.shapes.rows[c]; row++)
        for (int k = 0; k < emulated.shapes.rows[b]; k++)
            for (int column = 0; column < emulated.shapes.bytes[c] / 4; column++) {
                int32_t sum;
                memcpy(&sum, &emulated.data[c][row][4 * column], sizeof sum);
                for (int i = 0; i < 4; i++)
                    sum += emulated.data[a][row][4 * k + i] * (int8_t)emulated.data[b][k][4 * column + i];
                memcpy(&emulated.data[c][row][4 * column], &sum, sizeof sum);
            }
}

#define TILE_CONFIGURE(shapes) emulated_configure(shapes)
#define TILE_RELEASE() memset(&emulated.shapes, 0, sizeof emulated.shapes)
#define TILE_ZERO(tile) emulated_zero(tile)
#define TILE_LOAD(tile, from, stride) emulated_load(tile, from, stride)
#define TILE_STORE(tile, to, stride) emulated_store(tile, to, stride)
#define TILE_DOT_PAIRS(c, a, b) emulated_dot_pairs(c, a, b)
#define TILE_DOT_BYTES(c, a, b) emulated_dot_bytes(c, a, b)

static int tiles_usable(void) { return 1; }
