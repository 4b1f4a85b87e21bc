/* A tile of paged attention with few query rows, over keys and values of 8-bit integers, for processors that multiply quads of
 * bytes. Included by section.h if QUADS is defined, after pair_tile.h. The head dimension is a multiple of 64.
 *
 * Nothing but the cache is rounded to 8 bits: a query is two bytes per element, 256 · high + low, with one scale, and so are
 * the weights of KEYS keys, which contain the scales of the values. The sums of integers are exact. Softmax as in pair_tile.h.
 */
#define ROWS 3   /* of two bytes, times four sums, beside four registers of keys or values and one more */
#define PIECE 64 /* elements of a head that fill a register */
#define LINE 64  /* bytes that the processor fetches together */
#define WORD(from) ({ int32_t word_; memcpy(&word_, from, sizeof word_); (NAME(ints)){0} + word_; })

/* State of a tile between keys, by query row. */
struct NAME(int8_state) {
    int8_t query[2 * MAX_ROWS * MAX_DIM] ALIGNED; /* of each row the upper, then the lower bytes */
    int32_t above[2 * MAX_ROWS];                  /* what keys as unsigned bytes add: 128 · Σ of the query's bytes */
    float scale[MAX_ROWS];
    float out[MAX_ROWS * MAX_DIM] ALIGNED; /* of each PIECE the elements 16 l + 4 i + e at 16 i + 4 l + e, for e < 4 */
    V sums[MAX_ROWS];
    float highest[MAX_ROWS];
};

/* Splits the query [dim] of a row into bytes. `factor`: of its scores. */
static INLINE void NAME(split_query)(const uint16_t *query, const int dim, float factor, int row, struct NAME(int8_state) *state) {
    V largest = {0};
    NAME(ints) within = (NAME(ints)){0} == 0, sums[2] = {{0}, {0}};
    for (int d = 0; d < dim; d += LANES) {
        const V magnitude = NAME(magnitude)(NAME(load)(query, d, 1));
        largest = NAME(higher)(magnitude, largest);
        within &= magnitude <= FLT_MAX;
    }
    const float most = NAME(max)(largest);
    const int finite = NAME(bits)(~within) == 0, usable = finite && most > SMALLEST;
    const float inverse = usable ? 32512.0f / most : 0.0f;
    for (int d = 0; d < dim; d += LANES) {
        const NAME(ints) whole = (NAME(ints))_mm512_cvtps_epi32((__m512)(NAME(load)(query, d, 1) * inverse));
        const NAME(ints) high = (whole + 128) >> 8, low = whole - (high << 8);
        const NAME(octets) bytes[2] = {__builtin_convertvector(high, NAME(octets)), __builtin_convertvector(low, NAME(octets))};
        for (int half = 0; half < 2; half++)
            memcpy(state->query + (2 * row + half) * dim + d, &bytes[half], sizeof bytes[half]);
        sums[0] += high, sums[1] += low;
    }
    for (int half = 0; half < 2; half++)
        state->above[2 * row + half] = 128 * _mm512_reduce_add_epi32((__m512i)sums[half]);
    state->scale[row] = !finite ? NAN : usable ? factor * (most / 32512.0f) : 0.0f;
}

/* Entries of one head in a group's page; `count` above 0. The last of them stands for those beyond. */
static INLINE const char *NAME(entry)(const char *first, int j, int count, int64_t stride) {
    return first + (j < count ? j : count - 1) * stride;
}

/* What follows in the cache and is fetched to level 2 meanwhile: of each group and each PIECE of a head LANES lines that are
 * `step` bytes apart, and one more. A line that is left out is waited for. */
struct NAME(following) {
    const char *group[2][GROUPS]; /* keys and values */
    int64_t step, piece;          /* bytes from line to line, and from piece to piece */
};

static INLINE void NAME(fetch_following)(const char *group, const struct NAME(following) *next, int d, int line) {
    __builtin_prefetch(group + d / PIECE * next->piece + line * next->step, 0, 2);
}

/* The scales of a group's entries, 0 beyond `count`. One by one: a gather takes twice as long. */
static INLINE __m512 NAME(scales)(const char *first, int count, int64_t stride, const int dim) {
    __m128 part[4];
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
#define OF_KEY(j) _mm_load_ss((const float *)(NAME(entry)(first, 4 * p + j, count, stride) + dim))
        part[p] = _mm_insert_ps(OF_KEY(0), OF_KEY(1), 0x10);
        part[p] = _mm_insert_ps(part[p], OF_KEY(2), 0x20);
        part[p] = _mm_insert_ps(part[p], OF_KEY(3), 0x30);
#undef OF_KEY
    }
    const __m512 low = _mm512_insertf32x4(_mm512_castps128_ps512(part[0]), part[1], 1);
    const __m512 all = _mm512_insertf32x4(_mm512_insertf32x4(low, part[2], 2), part[3], 3);
    return _mm512_maskz_mov_ps((__mmask16)((1u << count) - 1), all);
}

/* Up to KEYS keys of one head, as unsigned bytes. */
struct NAME(quad_keys) {
    uint8_t keys[KEYS * MAX_DIM] ALIGNED; /* [dim / 4, GROUPS, LANES, 4] */
    __m512 scales[GROUPS];
};

/* Reads a group's keys, the first at `first`. */
static INLINE void NAME(read_keys)(const char *first, int count, int64_t stride, const int dim, int group,
                                   struct NAME(quad_keys) *keys) {
    for (int d = 0; d < dim; d += PIECE) {
        __m512i part[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            part[j] = _mm512_xor_si512(_mm512_loadu_si512(NAME(entry)(first, j, count, stride) + d), _mm512_set1_epi8(-128));
        NAME(turn)(part);
#pragma GCC unroll 16
        for (int k = 0; k < LANES; k++)
            _mm512_store_si512(keys->keys + ((d / 4 + k) * GROUPS + group) * PIECE, part[k]);
    }
    keys->scales[group] = NAME(scales)(first, count, stride, dim);
}

/* Computes the scores of `rows` rows from `row` on with all keys: out [rows, GROUPS]. The keys of `next` are fetched meanwhile:
 * evenly, because few lines can be under way. */
static INLINE void NAME(score_quads)(const struct NAME(int8_state) *state, int row, const int rows, const int dim,
                                     const struct NAME(quad_keys) *keys, const struct NAME(following) *next, V *out) {
    const int8_t *query = state->query + 2 * row * dim;
    NAME(ints) sum[2 * ROWS][GROUPS];
#pragma GCC unroll 6
    for (int r = 0; r < 2 * rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            sum[r][g] = (NAME(ints)){0} - state->above[2 * row + r];
    for (int d = 0; d < dim; d += 4) {
        NAME(ints) key[GROUPS];
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            key[g] = (NAME(ints))_mm512_load_si512(keys->keys + d * KEYS + g * PIECE);
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            NAME(fetch_following)(next->group[0][g], next, d, d % PIECE / 4);
#pragma GCC unroll 6
        for (int r = 0; r < 2 * rows; r++) {
            const NAME(ints) bytes = WORD(query + r * dim + d);
#pragma GCC unroll 4
            for (int g = 0; g < GROUPS; g++)
                sum[r][g] = NAME(dot)(sum[r][g], key[g], bytes);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++)
        NAME(fetch_following)(next->group[0][g], next, dim, 0);
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++) {
            const __m512 high = _mm512_cvtepi32_ps((__m512i)sum[2 * r][g]), low = _mm512_cvtepi32_ps((__m512i)sum[2 * r + 1][g]);
            out[r * GROUPS + g] = (V)_mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), low) * (V)keys->scales[g] * state->scale[row + r];
        }
}

/* Turns a row's scores [GROUPS] into weights times `scales`, those of the values over what 1 stands for: two bytes each, [2,
 * KEYS]. Rescales the row's sums if its maximum grows. */
static INLINE void NAME(weigh_bytes)(const struct layer *layer, const struct NAME(group) *groups, int64_t position, int hidden,
                                     const int dim, int row, const __m512 *scales, V *scores, uint8_t *weights,
                                     struct NAME(int8_state) *state) {
    float *out = state->out + row * dim;
    for (int g = 0; hidden && g < GROUPS; g++) {
        const V capped = layer->softcap > 0 ? NAME(cap)(scores[g], layer->softcap) : scores[g];
        const __mmask16 seen = NAME(visible)(&groups[g], position, layer->window);
        scores[g] = (V)_mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen, (__m512)capped);
    }
    const __m512 left = _mm512_max_ps((__m512)scores[0], (__m512)scores[1]);
    const __m512 right = _mm512_max_ps((__m512)scores[2], (__m512)scores[3]);
    const __m512 most = _mm512_mul_ps(_mm512_max_ps(left, right), _mm512_set1_ps(LOG2E));
    if (_mm512_cmp_ps_mask(most, _mm512_set1_ps(state->highest[row]), _CMP_GT_OQ)) {
        const float top = _mm512_reduce_max_ps(most);
        const float shrink = state->highest[row] == -INFINITY ? 0.0f : exp2f(state->highest[row] - top);
        state->sums[row] *= shrink;
        for (int d = 0; d < dim; d += LANES)
            *(V *)(out + d) *= shrink;
        state->highest[row] = top;
    }
    /* No key so far: weights are 0, not 2^(-inf + inf). A NaN score stays NaN. */
    const __m512 base = _mm512_set1_ps(state->highest[row] == -INFINITY ? 0.0f : state->highest[row]);
    V sum = state->sums[row];
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++) {
        const __m512 weight = NAME(power)(_mm512_fmsub_ps((__m512)scores[g], _mm512_set1_ps(LOG2E), base));
        const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(weight, scales[g]));
        sum += (V)weight;
        _mm_store_si128((__m128i *)(weights + g * LANES), _mm512_cvtepi32_epi8(_mm512_srli_epi32(whole, 8)));
        _mm_store_si128((__m128i *)(weights + KEYS + g * LANES), _mm512_cvtepi32_epi8(whole));
    }
    state->sums[row] = sum;
}

/* Adds the piece at `d` of a group's values to `sum`: weights [rows, 2, KEYS] of its keys. That of the group `later` of `next` is
 * fetched meanwhile. */
static INLINE void NAME(add_group)(const uint8_t *weights, const int rows, const char *first, int count, int64_t stride, int d,
                                   const char *later, const struct NAME(following) *next, NAME(ints) (*sum)[4]) {
    for (int j = 0; j < count; j += 4) {
        __m512i of_key[4], value[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            of_key[k] = _mm512_loadu_si512(NAME(entry)(first, j + k, count, stride) + d);
            NAME(fetch_following)(later, next, d, j + k);
        }
        const __m512i low = _mm512_unpacklo_epi8(of_key[0], of_key[1]), high = _mm512_unpackhi_epi8(of_key[0], of_key[1]);
        const __m512i low2 = _mm512_unpacklo_epi8(of_key[2], of_key[3]), high2 = _mm512_unpackhi_epi8(of_key[2], of_key[3]);
        value[0] = _mm512_unpacklo_epi16(low, low2), value[1] = _mm512_unpackhi_epi16(low, low2);
        value[2] = _mm512_unpacklo_epi16(high, high2), value[3] = _mm512_unpackhi_epi16(high, high2);
#pragma GCC unroll 6
        for (int r = 0; r < 2 * rows; r++) {
            const NAME(ints) weight = WORD(weights + r * KEYS + j);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                sum[r][i] = NAME(dot)(sum[r][i], weight, (NAME(ints))value[i]);
        }
    }
}

/* Adds the values of KEYS keys to `out` [rows, dim]: weights [rows, 2, KEYS] times `factor`. `values`: of each group's first
 * key; those of `next` are fetched meanwhile. */
static INLINE void NAME(add_quads)(const uint8_t *weights, float factor, const int rows, const int dim,
                                   const struct NAME(group) *groups, const char *const *values, int64_t stride,
                                   const struct NAME(following) *next, float *out) {
    for (int d = 0; d < dim; d += PIECE) {
        NAME(ints) sum[2 * ROWS][4];
#pragma GCC unroll 6
        for (int r = 0; r < 2 * rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                sum[r][i] = (NAME(ints)){0};
        for (int g = 0; g < GROUPS; g++)
            if (groups[g].count == LANES)
                NAME(add_group)(weights + g * LANES, rows, values[g], LANES, stride, d, next->group[1][g], next, sum);
            else
                NAME(add_group)(weights + g * LANES, rows, values[g], groups[g].count, stride, d, next->group[1][g], next, sum);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const __m512 high = _mm512_cvtepi32_ps((__m512i)sum[2 * r][i]), low = _mm512_cvtepi32_ps((__m512i)sum[2 * r + 1][i]);
                V *to = (V *)(out + r * dim + d + i * LANES);
                *to += (V)_mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), low) * factor;
            }
    }
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++)
        NAME(fetch_following)(next->group[1][g], next, dim, 0);
}

/* The next two are functions of their own, so that their sums get all registers. */
static __attribute__((noinline)) void NAME(score_int8)(const struct NAME(int8_state) *state, int row, int rows, int dim,
                                                       const struct NAME(quad_keys) *keys,
                                                       const struct NAME(following) *next, V *out) {
    if (rows == 1)
        NAME(score_quads)(state, row, 1, dim, keys, next, out);
    else if (rows == 2)
        NAME(score_quads)(state, row, 2, dim, keys, next, out);
    else
        NAME(score_quads)(state, row, ROWS, dim, keys, next, out);
}

static __attribute__((noinline)) void NAME(add_int8)(const uint8_t *weights, float factor, int rows, int dim,
                                                     const struct NAME(group) *groups, const char *const *values,
                                                     int64_t stride, const struct NAME(following) *next, float *out) {
    if (rows == 1)
        NAME(add_quads)(weights, factor, 1, dim, groups, values, stride, next, out);
    else if (rows == 2)
        NAME(add_quads)(weights, factor, 2, dim, groups, values, stride, next, out);
    else
        NAME(add_quads)(weights, factor, ROWS, dim, groups, values, stride, next, out);
}

/* Computes what a weight of 1 is multiplied with so that it and the scale of its value fit two bytes, 65,280 at most: scales
 * [GROUPS]. Returns what their products are multiplied with: NaN if a value is not finite. `values`: of each group's first key. */
static INLINE float NAME(value_scales)(const struct NAME(group) *groups, const char *const *values, int64_t stride, const int dim,
                                       __m512 *scales) {
    __m512 most = _mm512_setzero_ps();
    __mmask16 strange = 0;
    for (int g = 0; g < GROUPS; g++) {
        scales[g] = groups[g].count == LANES ? NAME(scales)(values[g], LANES, stride, dim)
                    : groups[g].count > 0    ? NAME(scales)(values[g], groups[g].count, stride, dim)
                                             : _mm512_setzero_ps();
        strange |= _mm512_cmp_ps_mask(scales[g], scales[g], _CMP_UNORD_Q);
        most = _mm512_max_ps(most, scales[g]);
    }
    const float largest = _mm512_reduce_max_ps(most);
    const int usable = largest > SMALLEST;
    for (int g = 0; g < GROUPS; g++)
        scales[g] = _mm512_mul_ps(scales[g], _mm512_set1_ps(usable ? 65280.0f / largest : 0.0f));
    return strange ? NAN : usable ? largest / 65280.0f : 0.0f;
}

/* Adds KEYS keys of one KV head to the rows [first, first + rows) of the state. `entries`: the keys and values of each group's
 * first key. */
static INLINE void NAME(add_keys)(const struct layer *layer, const struct tile *tile, const struct NAME(group) *groups,
                                  int of_token, int first, int rows, const int dim, int64_t stride,
                                  const char *const (*entries)[GROUPS], const struct NAME(following) *next,
                                  struct NAME(int8_state) *state) {
    const int hidden = NAME(hides)(layer, tile, groups);
    V scores[ROWS * GROUPS];
    uint8_t weights[ROWS * 2 * KEYS] ALIGNED;
    struct NAME(quad_keys) keys;
    __m512 scales[GROUPS];
    float factor = 0.0f;
    for (int g = 0; g < GROUPS; g++)
        if (groups[g].count == LANES)
            NAME(read_keys)(entries[0][g], LANES, stride, dim, g, &keys);
        else if (groups[g].count > 0)
            NAME(read_keys)(entries[0][g], groups[g].count, stride, dim, g, &keys);
    for (int row = first, last = first + rows; row < last; row += ROWS) {
        const int count = last - row < ROWS ? last - row : ROWS;
        NAME(score_int8)(state, row, count, dim, &keys, next, scores);
        if (row == first) /* not earlier: they may still be on their way from memory */
            factor = NAME(value_scales)(groups, entries[1], stride, dim, scales);
        for (int r = 0; r < count; r++)
            NAME(weigh_bytes)(layer, groups, tile->position + (row + r - first) / of_token, hidden, dim, row + r, scales,
                              scores + r * GROUPS, weights + r * 2 * KEYS, state);
        NAME(add_int8)(weights, factor, count, dim, groups, entries[1], stride, next, state->out + row * dim);
    }
}

static INLINE void NAME(int8_body)(const struct work *work, const struct layer *layer, const struct tile *tile, const int dim) {
    const int of_token = (int)(work->heads / work->kv_heads), rows = tile->count * of_token, all = rows * tile->heads;
    const int64_t entry = entry_bytes(work), stride = work->kv_heads * entry;
    const char *caches[2] = {(const char *)layer->key_cache + tile->kv_head * entry,
                             (const char *)layer->value_cache + tile->kv_head * entry};
    const int whole = tile->heads == work->kv_heads; /* then what follows is fetched in the order of memory */
    struct NAME(int8_state) state;

    for (int r = 0; r < all; r++) { /* rows of one head are adjacent */
        const struct NAME(place) place = NAME(place_of)(work, tile, r);
        NAME(split_query)((const uint16_t *)layer->query + place.token * layer->query_token + place.head * layer->query_head, dim,
                          layer->scale, r, &state);
        memset(state.out + r * dim, 0, sizeof(float) * (size_t)dim);
        state.sums[r] = (V){0};
        state.highest[r] = -INFINITY;
    }
    struct NAME(walk) walk = NAME(begin)(work, layer, tile);
    while (NAME(advance)(work, layer, tile, &walk)) {
        const struct NAME(group) *now = walk.now, *next = walk.next;
        for (int head = 0; head < tile->heads; head++) {
            const char *entries[2][GROUPS];
            const int64_t first = (whole ? LANES : 1) * head * entry;
            struct NAME(following) following = {.step = whole ? LINE : stride, .piece = whole ? LANES * LINE : PIECE};
            for (int g = 0; g < GROUPS; g++)
                for (int part = 0; part < 2; part++) {
                    const int64_t base = now[g].count > 0 ? now[g].base : now[0].base;
                    entries[part][g] = caches[part] + base + head * entry;
                    following.group[part][g] = caches[part] + (next[g].count > 0 ? next[g].base : base) + first;
                }
            NAME(add_keys)(layer, tile, now, of_token, head * rows, rows, dim, stride, (const char *const (*)[GROUPS])entries,
                           &following, &state);
        }
    }
    for (int r = 0; r < all; r++) {
        const struct NAME(place) place = NAME(place_of)(work, tile, r);
        const float sum = NAME(sum)(state.sums[r]);
        for (int d = 0; d < dim; d += PIECE) {
            float ordered[PIECE] ALIGNED;
            for (int part = 0; part < PIECE; part += 4)
                memcpy(ordered + part % 16 * 4 + part / 16 * 4, state.out + r * dim + d + part, 4 * sizeof(float));
            for (int i = 0; i < PIECE; i += LANES)
                NAME(store)(layer->out, (place.token * work->heads + place.head) * dim + d + i, *(V *)(ordered + i) / sum, 1);
        }
    }
}

#undef ROWS
#undef PIECE
#undef LINE
#undef WORD
