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
    int64_t at, base; /* position of the first one, and its place in the cache in bytes, see place_of_token */
    int64_t offset;   /* of the first one in its page */
    int count;        /* up to LANES, or 0 */
};

/* Finds the groups that begin at position `at`; those beyond `last` have no keys. Returns the position behind them. */
static INLINE int64_t NAME(find_groups)(const struct work *work, const int64_t *table, int64_t at, int64_t last,
                                        struct NAME(group) *groups) {
    const int64_t size = work->block_size;
    int64_t page = at / size, offset = at % size;
    for (int g = 0; g < GROUPS; g++) {
        const int64_t room = size - offset, left = last - at + 1, most = room < LANES ? room : LANES;
        groups[g] = (struct NAME(group)){.at = at, .offset = offset, .count = (int)(left < 0 ? 0 : left < most ? left : most)};
        if (groups[g].count > 0)
            groups[g].base = place_of_token(work, table[page], offset);
        at += groups[g].count, offset += groups[g].count;
        if (offset == size)
            page++, offset = 0;
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

/* Interleaves two halves of words: 0, 16, 1, 17, ... */
static INLINE __m512i NAME(order_of_pairs)(void) {
    return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2,
                            17, 1, 16, 0);
}

/* Reads group `place` of `pairs` from 8-bit integers: a head of a page of `size` tokens, whose entries [offset, offset + count)
 * are the group's. The keys of the head at `later` are fetched meanwhile. */
static INLINE void NAME(read_int8)(const char *keys, const char *values, int64_t offset, int count, int64_t size, const int dim,
                                   const char *later, int place, struct NAME(pairs) *pairs) {
    const __mmask16 inside = (__mmask16)((1u << count) - 1);
    uint16_t *paired_keys = pairs->keys + place * LANES * dim, *paired_values = pairs->values + place * LANES * dim;
    const __m512 key_scales = _mm512_maskz_loadu_ps(inside, keys + dim * size + 4 * offset);
    float value_scales[LANES] ALIGNED;
    _mm512_store_ps(value_scales, _mm512_maskz_loadu_ps(inside, values + dim * size + 4 * offset));
    for (int d = 0; d < dim; d += 4) {
        const __m512i quads = _mm512_maskz_loadu_epi32(inside, keys + d * size + 4 * offset);
        __m512 element[4];
        NAME(fetch_part)(later + d * size);
#pragma GCC unroll 4
        for (int e = 0; e < 4; e++)
            element[e] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(quads, 24 - 8 * e), 24)), key_scales);
#pragma GCC unroll 2
        for (int e = 0; e < 4; e += 2)
            _mm512_store_si512(paired_keys + (d + e) * LANES,
                               _mm512_permutexvar_epi16(NAME(order_of_pairs)(),
                                                        (__m512i)_mm512_cvtne2ps_pbh(element[e + 1], element[e])));
    }
    NAME(fetch_part)(later + dim * size);
    for (int j = 0; j < LANES; j += 2) {
        const char *one = values + (offset + (j < count ? j : 0)) * dim; /* another one's scale is 0 */
        const char *two = values + (offset + (j + 1 < count ? j + 1 : 0)) * dim;
        for (int d = 0; d < dim; d += LANES) {
            const __m512 low = (__m512)(NAME(widen_bytes)(one + d) * value_scales[j]);
            const __m512 high = (__m512)(NAME(widen_bytes)(two + d) * value_scales[j + 1]);
            _mm512_store_si512(paired_values + j * dim + 2 * d,
                               _mm512_permutexvar_epi16(NAME(order_of_pairs)(), (__m512i)_mm512_cvtne2ps_pbh(high, low)));
        }
    }
}

/* Reads group `place` of `pairs` from `count` keys and values that are `apart` bytes apart. The keys at `later` are fetched
 * meanwhile, as far apart as these. */
static INLINE void NAME(read)(const char *keys, const char *values, int64_t apart, int count, const int dim, const char *later,
                              int place, struct NAME(pairs) *pairs) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    uint16_t *paired_keys = pairs->keys + place * LANES * dim, *paired_values = pairs->values + place * LANES * dim;
    uint16_t filled[2][LANES * MAX_DIM] ALIGNED;
    const uint16_t *key = (const uint16_t *)keys, *value = (const uint16_t *)values;
    int64_t stride = apart / 2;
    if (count < LANES) { /* so that the loops below need no check per key */
        memset(filled[0], 0, 2 * (size_t)(LANES * dim)), memset(filled[1], 0, 2 * (size_t)(LANES * dim));
        for (int j = 0; j < count; j++) {
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
