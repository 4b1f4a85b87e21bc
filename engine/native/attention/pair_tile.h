/* A tile of paged attention for processors that multiply pairs of bf16. It computes the same sums as few_rows.h without
 * widening keys and values. Included by section.h if PAIRS is defined. Weights are rounded to bf16 before the
 * product with the values, as in torch; their sum is not rounded. The head dimension is a multiple of 32. */

#define PAIR(from) ({ int32_t both_; memcpy(&both_, from, sizeof both_); _mm512_set1_epi32(both_); })

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

/* Computes scores of `rows` queries with 16 keys: query [rows, dim], keys [dim / 2, 16, 2]. */
static INLINE void NAME(scores)(const uint16_t *query, const int dim, const uint16_t *keys, const int rows, V *out) {
    __m512 even[4], odd[4]; /* two sums, because each product depends on the previous one */
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        even[r] = odd[r] = _mm512_setzero_ps();
    for (int d = 0; d < dim; d += 4) {
        const __m512i one = _mm512_load_si512(keys + d * 16), two = _mm512_load_si512(keys + d * 16 + 32);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            even[r] = _mm512_dpbf16_ps(even[r], (__m512bh)PAIR(query + r * dim + d), (__m512bh)one);
            odd[r] = _mm512_dpbf16_ps(odd[r], (__m512bh)PAIR(query + r * dim + d + 2), (__m512bh)two);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        out[r] = (V)_mm512_add_ps(even[r], odd[r]);
}

/* State of a tile between keys: per query row the output sum, and the sum and maximum of the softmax. */
struct NAME(state) {
    uint16_t query[MAX_ROWS * MAX_DIM] ALIGNED;
    float out[MAX_ROWS * MAX_DIM] ALIGNED;
    V sums[MAX_ROWS];
    float highest[MAX_ROWS];
};

/* Up to 16 keys and values of one head: keys transposed, both paired for the products. */
struct NAME(pairs) {
    uint16_t keys[LANES * MAX_DIM] ALIGNED;   /* [dim / 2, 16, 2] */
    uint16_t values[LANES * MAX_DIM] ALIGNED; /* [8, dim, 2] */
};

/* Fetches 32 inputs of a key or value to the level 2 cache: the level 1 cache has too few miss buffers for a block. */
static INLINE void NAME(fetch_part)(const uint16_t *from) { __builtin_prefetch(from, 0, 2); }

/* `next` keys and values are fetched meanwhile, as far apart as these. */
static INLINE void NAME(read)(const uint16_t *key, const uint16_t *value, int64_t stride, int count, const int dim,
                              const uint16_t *next_key, const uint16_t *next_value, struct NAME(pairs) *pairs) {
    const int64_t apart = stride;
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    uint16_t filled[2][LANES * MAX_DIM] ALIGNED;
    if (count < LANES) { /* so that the loops below need no check per key */
        memset(filled, 0, sizeof filled);
        for (int j = 0; j < count; j++) {
            memcpy(filled[0] + j * dim, key + j * stride, 2 * (size_t)dim);
            memcpy(filled[1] + j * dim, value + j * stride, 2 * (size_t)dim);
        }
        key = filled[0], value = filled[1], stride = dim;
    }
    for (int d = 0; d < dim; d += 32) {
        __m512i part[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            part[j] = _mm512_loadu_si512(key + j * stride + d);
        NAME(turn)(part);
        for (int j = 0; j < LANES; j++)
            NAME(fetch_part)(next_key + j * apart + d);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            _mm512_store_si512(pairs->keys + d * LANES + j * 32, part[j]);
    }
    for (int j = 0; j < count; j += 2)
        for (int d = 0; d < dim; d += 32) {
            NAME(fetch_part)(next_value + j * apart + d);
            NAME(fetch_part)(next_value + (j + 1) * apart + d);
            const __m512i one = _mm512_loadu_si512(value + j * stride + d);
            const __m512i two = _mm512_loadu_si512(value + (j + 1) * stride + d);
            uint16_t *to = pairs->values + j * dim + 2 * d;
            _mm512_store_si512(to, _mm512_permutex2var_epi16(one, low, two));
            _mm512_store_si512(to + 32, _mm512_permutex2var_epi16(one, high, two));
        }
}

/* Adds up to 16 keys to the rows [first, first + rows) of the state. Row r belongs to token r / group of the tile. */
static INLINE void NAME(add)(const struct layer *layer, const struct tile *tile, int64_t at, int count, int group,
                             int first, int rows, const int dim, const struct NAME(pairs) *pairs,
                             struct NAME(state) *state) {
    V weights[MAX_ROWS];
    uint16_t rounded[MAX_ROWS * LANES] ALIGNED;
    const uint16_t *query = state->query + first * dim;
    int row = 0;
    for (; row + 4 <= rows; row += 4)
        NAME(scores)(query + row * dim, dim, pairs->keys, 4, weights + row);
    for (; row + 2 <= rows; row += 2)
        NAME(scores)(query + row * dim, dim, pairs->keys, 2, weights + row);
    if (row < rows)
        NAME(scores)(query + row * dim, dim, pairs->keys, 1, weights + row);
    for (int r = 0; r < rows; r++) {
        const V scores = NAME(limit)(layer, weights[r] * layer->scale, at, count, tile->position + r / group);
        float *highest = &state->highest[first + r], top = _mm512_reduce_max_ps((__m512)scores);
        if (top > *highest) {
            const float shrink = *highest == -INFINITY ? 0.0f : expf(*highest - top);
            state->sums[first + r] *= shrink;
            for (int d = 0; d < dim; d += LANES)
                *(V *)(state->out + (first + r) * dim + d) *= shrink;
            *highest = top;
        }
        /* No key so far: weights are 0, not e^(-inf + inf). A NaN score stays NaN. */
        const V weight = NAME(exp)(scores - (*highest == -INFINITY ? 0.0f : *highest));
        const __m256bh narrow = _mm512_cvtneps_pbh((__m512)weight);
        memcpy(rounded + r * LANES, &narrow, sizeof narrow);
        state->sums[first + r] += weight;
    }
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < dim; d += 2 * LANES) {
            float *o = state->out + (first + r) * dim + d;
            __m512 a = _mm512_load_ps(o), b = _mm512_load_ps(o + LANES);
            for (int j = 0; j < count; j += 2) {
                const __m512i pair = PAIR(rounded + r * LANES + j);
                const uint16_t *v = pairs->values + j * dim + 2 * d;
                a = _mm512_dpbf16_ps(a, (__m512bh)pair, (__m512bh)_mm512_load_si512(v));
                b = _mm512_dpbf16_ps(b, (__m512bh)pair, (__m512bh)_mm512_load_si512(v + 2 * LANES));
            }
            _mm512_store_ps(o, a), _mm512_store_ps(o + LANES, b);
        }
}

static INLINE void NAME(pair_body)(const struct work *work, const struct layer *layer, const struct tile *tile,
                                   const int dim) {
    const int group = (int)(work->heads / work->kv_heads), rows = tile->count * group, all = rows * tile->heads;
    const int64_t last = tile->position + tile->count - 1, stride = work->kv_heads * (int64_t)dim;
    const int64_t *table = work->tables + work->table_first[tile->row], size = work->block_size;
    const uint16_t *keys = (const uint16_t *)layer->key_cache + tile->kv_head * dim;
    const uint16_t *values = (const uint16_t *)layer->value_cache + tile->kv_head * dim;
    struct NAME(state) state;
    struct NAME(pairs) pairs;

    for (int r = 0; r < all; r++) { /* rows of one head are adjacent */
        const int64_t token = tile->token + r % rows / group, head = (tile->kv_head + r / rows) * group + r % group;
        memcpy(state.query + r * dim,
               (const uint16_t *)layer->query + token * layer->query_token + head * layer->query_head, 2 * (size_t)dim);
        memset(state.out + r * dim, 0, sizeof(float) * (size_t)dim);
        state.sums[r] = (V){0};
        state.highest[r] = -INFINITY;
    }
    int64_t first = layer->window > 0 ? tile->position - layer->window + 1 : 0;
    first = first < 0 ? 0 : first;
    for (int64_t at = first; at <= last;) {
        const int64_t room = size - at % size, left = last - at + 1, to = at + (room < LANES ? room : LANES);
        const int count = (int)(room < LANES ? (room < left ? room : left) : (left < LANES ? left : LANES));
        const int64_t base = (table[at / size] * size + at % size) * stride;
        /* The next keys are scattered in memory: each head prefetches its own. */
        const int64_t next = to <= last ? (table[to / size] * size + to % size) * stride : base;
        for (int head = 0; head < tile->heads; head++) {
            NAME(read)(keys + base + head * dim, values + base + head * dim, stride, count, dim,
                       keys + next + head * dim, values + next + head * dim, &pairs);
            NAME(add)(layer, tile, at, count, group, head * rows, rows, dim, &pairs, &state);
        }
        at += count;
    }
    for (int r = 0; r < all; r++) {
        const int64_t token = tile->token + r % rows / group, head = (tile->kv_head + r / rows) * group + r % group;
        const float whole = NAME(sum)(state.sums[r]);
        for (int d = 0; d < dim; d += LANES)
            NAME(store)(layer->out, (token * work->heads + head) * dim + d, *(V *)(state.out + r * dim + d) / whole, 1);
    }
}

#undef PAIR
