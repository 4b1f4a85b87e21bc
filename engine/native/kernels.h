/* The loops with run-time dispatch: one table of functions per instruction set. */
#ifndef SLUICE_KERNELS_H
#define SLUICE_KERNELS_H
#include <stddef.h>
#include <stdint.h>

#define LINE 64 /* bytes that the caches move at once */
#define MAX_ROWS 64 /* query rows of an attention tile: tokens × query heads */
#define MANY_ROWS 16 /* from this many on, lanes are rows (many_rows.h): with fewer, lanes would be unused */
#define FEW_INT8 16 /* up to so many, a processor with products of bytes attends to 8-bit keys as they are (int8_tile.h) */
#define MAX_DIM 256
#define ABI 13 /* incremented with every change of function signatures; struct layouts are compared. Also in native.py */

struct work { /* one step; shared by all layers of a group */
    int64_t rows, tokens, heads, kv_heads, dim, block_size, bf16, threads;
    const int64_t *row_first;   /* [rows + 1] flat index of each row's first token */
    const int64_t *row_start;   /* [rows] position of that token */
    const int64_t *table_first; /* [rows] start of the row's block table in `tables` */
    const int64_t *tables;      /* flat block numbers */
    const int64_t *slots;       /* [tokens] cache slot of each token's key and value */
    int64_t tile_rows;          /* query rows of a KV head from which AMX tiles attend; 0: never */
    int64_t int8_cache;         /* whether keys and values are kept as 8-bit integers, see attention/int8_entry.h */
};

/* Bytes of one head of one token in the cache. */
static inline int64_t entry_bytes(const struct work *work) {
    return work->int8_cache ? work->dim + (int64_t)sizeof(float) : work->dim * (work->bf16 ? 2 : 4);
}

/* Bytes from one KV head to the next: in a token, or with 8-bit integers in a block. */
static inline int64_t head_bytes(const struct work *work) {
    return (work->int8_cache ? work->block_size : 1) * entry_bytes(work);
}

/* Where the first KV head of the token at `offset` of a block is in the cache, in bytes; with 8-bit integers that of the block. */
static inline int64_t place_of_token(const struct work *work, int64_t block, int64_t offset) {
    return (block * work->block_size + (work->int8_cache ? 0 : offset)) * work->kv_heads * entry_bytes(work);
}

struct layer { /* one layer's tensors for attention; strides in elements, the last dimension is dense */
    const void *query;                       /* [tokens, heads, dim] */
    int64_t query_token, query_head;
    const void *key, *value;                 /* [tokens, kv_heads, dim] */
    int64_t key_token, key_head, value_token, value_head;
    void *key_cache, *value_cache;           /* [blocks, block_size, kv_heads, entry_bytes], dense; see place_of_token */
    void *out;                               /* [tokens, heads, dim], dense */
    int64_t window;                          /* 0: none */
    float scale, softcap;                    /* softcap 0: none */
};

struct tile { /* unit of attention work of one thread */
    int64_t row, token, position, kv_head;
    int count; /* tokens */
    int heads; /* KV heads from `kv_head` on; more than one only where count is 1 */
    const struct tile *after; /* whose first keys are fetched meanwhile; NULL: none */
};

enum kind {
    PLAIN,
    ADDED, /* added to the content of `out`: the residual */
    GATED, /* outputs are gates, then values: out = silu(gate) · value, half as wide */
    SCORES /* float32 output, rounded to the weight's type */
};

struct product { /* a packed weight, see product.h */
    const void *packed;
    const float *bias; /* packed like the weight, or NULL */
    int64_t inner, outer, kind;
    int64_t int8;      /* whether the weight is 8-bit integers and the rows are quantised, see int8.h */
    int64_t tile_rows; /* rows from which AMX tiles multiply, see amx/tiles.h; 0: never */
};

#define OUTLIERS 6
#define OUTLYING 5.0f
#define LARGEST 1048576.0f /* the largest magnitude of a quantised value */
#define MAX_INNER 32768 /* inputs of an int8 product */
#define SMALLEST 1e-36f /* rows with smaller steps, and outputs with smaller weights, are quantised to zeros */
#define ROW_HEADER 64 /* bytes before the elements of a quantised row */

struct quantised_row { /* header of a quantised row */
    float scale;
    int32_t zero; /* the element that stands for 0 */
    int32_t outliers;
    struct {
        int32_t place, excess; /* place: in a panel, see int8.h */
    } outlier[OUTLIERS];
};

/* Bytes from one quantised row to the next. */
static inline int64_t quantised_bytes(int64_t inner) {
    return ROW_HEADER + (2 * inner + 4 + 63) / 64 * 64;
}

enum form { /* of the rows that a product multiplies */
    GIVEN,     /* of the weight's type */
    WIDENED,   /* bf16 as float32, see wide_pairs.h */
    QUANTISED, /* see int8.h */
};

/* Bytes from one row to the next. Widened rows are an odd number of lines apart: by a power of two, they would share few lines of
 * the level 1 cache. */
static inline int64_t bytes_of_row(enum form form, int64_t inner, int bf16) {
    const int64_t lines = (4 * inner + LINE - 1) / LINE;
    return form == QUANTISED ? quantised_bytes(inner) : form == WIDENED ? (lines | 1) * LINE : inner * (bf16 ? 2 : 4);
}

struct layout { /* size and offset in bytes of one struct or of one field ("work.rows") */
    const char *name;
    int64_t offset, size;
};

struct kernels {
    void (*attend)(const struct work *, const struct layer *, const struct tile *);
    void (*multiply)(const struct product *, int64_t panel, const void *in, enum form, int64_t first, int64_t count, void *out,
                     int64_t out_stride, int bf16, const char *ahead);
    enum form (*form)(const struct product *, int64_t rows, int bf16);
    int64_t (*panels)(const struct product *);
    void (*pack)(const struct product *, const void *weight, const void *bias, int bf16, void *packed, float *packed_bias);
    void (*unpack)(const struct product *, int64_t index, int bf16, void *out);
    size_t (*panel_bytes)(const struct product *, int bf16);
    void (*quantise)(const void *in, int64_t size, int bf16, void *out);
    void (*widen)(const void *in, int64_t size, void *out);
    void (*norm)(const void *in, const void *weight, float epsilon, int64_t size, void *out, int bf16);
    float (*largest)(const float *in, int64_t size, int64_t *index);
    void (*keep)(const void *in, int64_t dim, int bf16, int keys, char *head, int64_t at, int64_t size);
    void (*rotate)(void *head, const void *cosine, const void *sine, int64_t size, int bf16);
    void (*leave)(void); /* called by each thread at the end of a step, or NULL */
    int64_t width; /* outputs per panel */
    int pairs;     /* whether products of bf16 weights are supported */
};

static inline void prepare_row(const struct kernels *kernels, enum form form, const void *in, int64_t size, int bf16, void *out) {
    if (form == QUANTISED)
        kernels->quantise(in, size, bf16, out);
    else
        kernels->widen(in, size, out);
}

/* Returns ABI, so that a library compiled from other sources is detected. */
int sluice_abi(void);

/* Returns the processor's level. 4: AMX, 3: AVX-512 with bf16, 2: AVX-512, 1: AVX2, 0: baseline. Asks the system for the use of
 * tiles, once and for the whole process, before other threads are started. */
int sluice_level(void);

/* Returns whether bf16 is multiplied as float32, from level 3 on, which is timed with the level; 0 or 1 sets it, for tests. */
int sluice_widens(int choice);

/* Returns the best table up to `level` that this processor supports. */
const struct kernels *kernels_of(int level);
#endif
