/* Keys and values of one head in the layout of the processor's products of pairs of bf16. Included by pair_tile.h. */

#define GROUPS 4 /* of LANES keys; a softmax covers all of them */
#define KEYS (GROUPS * LANES)

/* Transposes 16 × 16 words. */
static INLINE void NAME(turn)(__m512i *x) {
    __m512i y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88), b = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
        y[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        y[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        y[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = y[i];
}

/* Up to KEYS keys and values of one head: keys transposed, both paired for the products. Zeros where there are fewer. */
struct NAME(pairs) {
    uint16_t keys[KEYS * MAX_DIM] ALIGNED;   /* [GROUPS, dim / 2, LANES, 2] */
    uint16_t values[KEYS * MAX_DIM] ALIGNED; /* [KEYS / 2, dim, 2] */
};

struct NAME(group) { /* keys of one page, in order of their positions */
    int64_t at, base; /* position and place in the cache, in bytes, of the first one */
    int count;        /* up to LANES, or 0 */
};

/* Finds the groups that begin at position `at`; those beyond `last` have no keys. Returns the position behind them. */
static INLINE int64_t NAME(find_groups)(const int64_t *table, int64_t size, int64_t stride, int64_t at, int64_t last,
                                        struct NAME(group) *groups) {
    for (int g = 0; g < GROUPS; g++) {
        const int64_t room = size - at % size, left = last - at + 1, most = room < LANES ? room : LANES;
        groups[g] = (struct NAME(group)){.at = at, .count = (int)(left < 0 ? 0 : left < most ? left : most)};
        if (groups[g].count > 0)
            groups[g].base = (table[at / size] * size + at % size) * stride;
        at += groups[g].count;
    }
    return at;
}

/* Fetches a part of a key or value to the level 2 cache: the level 1 cache has too few miss buffers for a block. */
static INLINE void NAME(fetch_part)(const char *from) { __builtin_prefetch(from, 0, 2); }

/* The values of two groups that are fetched line by line, evenly over a product: memory must not rest while it computes. */
struct NAME(lines) {
    const char *group[2];
    int64_t stride, entry; /* bytes */
    int key, at;           /* the next line: of this key of both groups, from this byte on */
};

static INLINE void NAME(fetch_line)(struct NAME(lines) *lines) {
    NAME(fetch_part)(lines->group[lines->key / LANES % 2] + lines->key % LANES * lines->stride + lines->at);
    lines->at += 64;
    if (lines->at >= lines->entry)
        lines->at = 0, lines->key++;
}

/* Widens an entry of 8-bit integers to bf16, in stores as wide as the loads that follow. */
static INLINE void NAME(widen_entry)(const char *entry, const int dim, uint16_t *out) {
    for (int d = 0; d < dim; d += 32) {
        const __m512 low = (__m512)NAME(load_entry)(entry, d, dim, 1, 1);
        const __m512 high = (__m512)NAME(load_entry)(entry, d + LANES, dim, 1, 1);
        const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
        memcpy(out + d, &both, sizeof both);
    }
}

/* Reads group `place` of `pairs` from `count` keys and values that are `apart` bytes apart, `int8`: as 8-bit integers. The keys
 * at `later` are fetched meanwhile, as far apart as these. */
static INLINE void NAME(read)(const char *keys, const char *values, int64_t apart, int count, const int dim, const int int8,
                              const char *later, int place, struct NAME(pairs) *pairs) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    uint16_t *paired_keys = pairs->keys + place * LANES * dim, *paired_values = pairs->values + place * LANES * dim;
    uint16_t filled[2][LANES * MAX_DIM] ALIGNED;
    const uint16_t *key = (const uint16_t *)keys, *value = (const uint16_t *)values;
    int64_t stride = apart / 2;
    if (int8 || count < LANES) { /* so that the loops below need no check per key */
        if (count < LANES)
            memset(filled[0], 0, 2 * (size_t)(LANES * dim)), memset(filled[1], 0, 2 * (size_t)(LANES * dim));
        for (int j = 0; j < count; j++)
            if (int8) {
                NAME(widen_entry)(keys + j * apart, dim, filled[0] + j * dim);
                NAME(widen_entry)(values + j * apart, dim, filled[1] + j * dim);
            } else {
                memcpy(filled[0] + j * dim, keys + j * apart, 2 * (size_t)dim);
                memcpy(filled[1] + j * dim, values + j * apart, 2 * (size_t)dim);
            }
        key = filled[0], value = filled[1], stride = dim;
    }
    for (int d = 0; d < dim; d += 32) {
        __m512i part[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            part[j] = _mm512_loadu_si512(key + j * stride + d);
        NAME(turn)(part);
#pragma GCC unroll 8
        for (int j = 0; j < LANES / 2; j++)
            NAME(fetch_part)(later + j * apart + 2 * d);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            _mm512_store_si512(paired_keys + d * LANES + j * 32, part[j]);
    }
    for (int j = 0; j < LANES; j += 2)
        for (int d = 0; d < dim; d += 32) {
            NAME(fetch_part)(later + (LANES / 2 + j / 2) * apart + 2 * d);
            const __m512i one = _mm512_loadu_si512(value + j * stride + d);
            const __m512i two = _mm512_loadu_si512(value + (j + 1) * stride + d);
            uint16_t *to = paired_values + j * dim + 2 * d;
            _mm512_store_si512(to, _mm512_permutex2var_epi16(one, low, two));
            _mm512_store_si512(to + 32, _mm512_permutex2var_epi16(one, high, two));
        }
}

/* Makes group `place` one of zeros. */
static INLINE void NAME(read_nothing)(const int dim, int place, struct NAME(pairs) *pairs) {
    memset(pairs->keys + place * LANES * dim, 0, 2 * (size_t)(LANES * dim));
    memset(pairs->values + place * LANES * dim, 0, 2 * (size_t)(LANES * dim));
}
