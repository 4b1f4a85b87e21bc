/* A tile of paged attention with few query rows, over keys and values of 8-bit integers, for processors that multiply quads of
 * bytes. Included by section.h if QUADS is defined, after pair_tile.h. The head dimension is a multiple of 64.
 *
 * Nothing but the cache is rounded to 8 bits: a query is two bytes per element, 256 · high + low, with one scale, and so are
 * the weights of KEYS keys, which contain the scales of the values. The sums of integers are exact. Softmax as in pair_tile.h.
 */
#define ROWS 3   /* of two bytes, times four sums, beside four registers of keys or values and one more */
#define PIECE 64 /* elements of a head that fill a register */
#define SCORE_LINES 3 /* fetched per quad of elements, */
#define WEIGH_LINES 4 /* per group and row, */
#define ADD_LINES 3   /* and per quad of values with ROWS rows: KEYS keys and values of 64 bytes are 136 lines */
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

/* What one head has of KEYS keys, by group; that of the first where there are no keys. */
struct NAME(entries) {
    const char *keys[GROUPS], *values[GROUPS]; /* the first key's quads, `quads` bytes apart, and the first value */
    const char *value_scales[GROUPS];          /* those of keys are behind their quads */
    int64_t quads;
    __mmask16 inside[GROUPS]; /* a bit for each key that exists */
};

static INLINE struct NAME(entries) NAME(entries_of)(const struct layer *layer, const struct NAME(group) *groups, int64_t head,
                                                    int64_t size, const int dim) {
    struct NAME(entries) entries = {.quads = 4 * size};
    for (int g = 0; g < GROUPS; g++) {
        const struct NAME(group) *group = &groups[groups[g].count > 0 ? g : 0];
        const char *values = (const char *)layer->value_cache + group->base + head;
        entries.keys[g] = (const char *)layer->key_cache + group->base + head + 4 * group->offset;
        entries.values[g] = values + group->offset * dim;
        entries.value_scales[g] = values + size * dim + 4 * group->offset;
        entries.inside[g] = (__mmask16)((1u << groups[g].count) - 1);
    }
    return entries;
}

/* What the next step reads. It is fetched to level 2, evenly over a step: the processor drops what it is asked for while too
 * many lines are under way. So each line is asked for again, to level 1, one head before it is read. */
struct NAME(ahead) {
    const char *runs[2 * GROUPS]; /* of adjacent heads of a block, `bytes` each */
    int64_t bytes;
    const char *at, *end; /* of the present run */
    int left;             /* runs after it */
};

/* The runs of the next step, keys first; without one, a run that is read now. `first`: of the heads in a block, in bytes. */
static INLINE struct NAME(ahead) NAME(ahead_of)(const struct layer *layer, const struct NAME(walk) *walk, int64_t first,
                                                int64_t bytes) {
    struct NAME(ahead) ahead = {.bytes = bytes, .runs = {(const char *)layer->value_cache + walk->now[0].base + first}};
    int count = 0;
    for (int part = 0; part < 2; part++)
        for (int g = GROUPS - 1; g >= 0; g--) /* taken from the last one on */
            if (walk->next[g].count > 0)
                ahead.runs[count++] = (const char *)(part == 0 ? layer->value_cache : layer->key_cache) + walk->next[g].base + first;
    ahead.left = count > 0 ? count - 1 : 0;
    ahead.at = ahead.runs[ahead.left];
    ahead.end = ahead.at + bytes;
    return ahead;
}

/* Fetches the next lines of the next step. After the last one the last run begins anew: its lines are there. */
static INLINE void NAME(fetch_ahead)(struct NAME(ahead) *ahead, const int lines) {
#pragma GCC unroll 8
    for (int i = 0; i < lines; i++)
        __builtin_prefetch(ahead->at + i * LINE, 0, 2);
    ahead->at += lines * LINE;
    if (ahead->at >= ahead->end) {
        ahead->left -= ahead->left > 0;
        ahead->at = ahead->runs[ahead->left];
        ahead->end = ahead->at + ahead->bytes;
    }
}

static INLINE void NAME(fetch_near)(const char *from) { __builtin_prefetch(from, 0, 3); }

/* Computes the scores of `rows` rows from `row` on with all keys: out [rows, GROUPS]. `near`: of the next head. */
static INLINE void NAME(score_quads)(const struct NAME(int8_state) *state, int row, const int rows, const int dim,
                                     const struct NAME(entries) *entries, struct NAME(ahead) *ahead,
                                     const struct NAME(entries) *near, V *out) {
    const int8_t *query = state->query + 2 * row * dim;
    const int64_t quads = entries->quads;
    NAME(ints) sum[2 * ROWS][GROUPS];
#pragma GCC unroll 6
    for (int r = 0; r < 2 * rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            sum[r][g] = (NAME(ints)){0} - state->above[2 * row + r];
    for (int d = 0; d < dim / 4; d++) {
        NAME(ints) key[GROUPS];
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++) {
            const __m512i quad = _mm512_maskz_loadu_epi32(entries->inside[g], entries->keys[g] + d * quads);
            key[g] = (NAME(ints))_mm512_xor_si512(quad, _mm512_set1_epi8(-128));
        }
        NAME(fetch_ahead)(ahead, SCORE_LINES);
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            NAME(fetch_near)(near->keys[g] + d * quads);
#pragma GCC unroll 6
        for (int r = 0; r < 2 * rows; r++) {
            const NAME(ints) bytes = WORD(query + r * dim + 4 * d);
#pragma GCC unroll 4
            for (int g = 0; g < GROUPS; g++)
                sum[r][g] = NAME(dot)(sum[r][g], key[g], bytes);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++) {
        const __m512 scales = _mm512_maskz_loadu_ps(entries->inside[g], entries->keys[g] + dim / 4 * quads);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) {
            const __m512 high = _mm512_cvtepi32_ps((__m512i)sum[2 * r][g]), low = _mm512_cvtepi32_ps((__m512i)sum[2 * r + 1][g]);
            out[r * GROUPS + g] = (V)_mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), low) * (V)scales * state->scale[row + r];
        }
    }
}

/* Turns a row's scores [GROUPS] into weights times `scales`, those of the values over what 1 stands for: two bytes each, [2,
 * KEYS]. Rescales the row's sums if its maximum grows. */
static INLINE void NAME(weigh_bytes)(const struct layer *layer, const struct NAME(group) *groups, int64_t position, int hidden,
                                     const int dim, int row, const __m512 *scales, V *scores, uint8_t *weights,
                                     struct NAME(ahead) *ahead, struct NAME(int8_state) *state) {
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
        NAME(fetch_ahead)(ahead, WEIGH_LINES);
        sum += (V)weight;
        _mm_store_si128((__m128i *)(weights + g * LANES), _mm512_cvtepi32_epi8(_mm512_srli_epi32(whole, 8)));
        _mm_store_si128((__m128i *)(weights + KEYS + g * LANES), _mm512_cvtepi32_epi8(whole));
    }
    state->sums[row] = sum;
}

/* Adds the piece at `d` of the `count` values of a group to `sum`: weights [rows, 2, KEYS] of its keys.
 * `later`: of the next head. */
static INLINE void NAME(add_group)(const uint8_t *weights, const int rows, const char *values, int count, const int dim, int d,
                                   const char *later, struct NAME(ahead) *ahead, NAME(ints) (*sum)[4]) {
    for (int j = 0; j < count; j += 4) {
        __m512i of_key[4], value[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) /* the weight of another is 0 */
            of_key[k] = _mm512_loadu_si512(values + (j + k < count ? j + k : 0) * dim + d);
        NAME(fetch_ahead)(ahead, ADD_LINES + ROWS - rows);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            NAME(fetch_near)(later + (j + k) * dim + d);
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

/* Adds the values of KEYS keys to `out` [rows, dim]: weights [rows, 2, KEYS] times `factor`. */
static INLINE void NAME(add_quads)(const uint8_t *weights, float factor, const int rows, const int dim,
                                   const struct NAME(group) *groups, const struct NAME(entries) *entries,
                                   struct NAME(ahead) *ahead, const struct NAME(entries) *near, float *out) {
    for (int d = 0; d < dim; d += PIECE) {
        NAME(ints) sum[2 * ROWS][4];
#pragma GCC unroll 6
        for (int r = 0; r < 2 * rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                sum[r][i] = (NAME(ints)){0};
        for (int g = 0; g < GROUPS; g++) {
            const char *values = entries->values[g], *later = near->values[g];
            if (groups[g].count == LANES)
                NAME(add_group)(weights + g * LANES, rows, values, LANES, dim, d, later, ahead, sum);
            else
                NAME(add_group)(weights + g * LANES, rows, values, groups[g].count, dim, d, later, ahead, sum);
        }
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const __m512 high = _mm512_cvtepi32_ps((__m512i)sum[2 * r][i]), low = _mm512_cvtepi32_ps((__m512i)sum[2 * r + 1][i]);
                V *to = (V *)(out + r * dim + d + i * LANES);
                *to += (V)_mm512_fmadd_ps(high, _mm512_set1_ps(256.0f), low) * factor;
            }
    }
}

/* The next two are functions of their own, so that their sums get all registers. */
static __attribute__((noinline)) void NAME(score_int8)(const struct NAME(int8_state) *state, int row, int rows, int dim,
                                                       const struct NAME(entries) *entries,
                                                       struct NAME(ahead) *ahead, const struct NAME(entries) *near, V *out) {
    if (rows == 1)
        NAME(score_quads)(state, row, 1, dim, entries, ahead, near, out);
    else if (rows == 2)
        NAME(score_quads)(state, row, 2, dim, entries, ahead, near, out);
    else
        NAME(score_quads)(state, row, ROWS, dim, entries, ahead, near, out);
}

static __attribute__((noinline)) void NAME(add_int8)(const uint8_t *weights, float factor, int rows, int dim,
                                                     const struct NAME(group) *groups, const struct NAME(entries) *entries,
                                                     struct NAME(ahead) *ahead, const struct NAME(entries) *near, float *out) {
    if (rows == 1)
        NAME(add_quads)(weights, factor, 1, dim, groups, entries, ahead, near, out);
    else if (rows == 2)
        NAME(add_quads)(weights, factor, 2, dim, groups, entries, ahead, near, out);
    else
        NAME(add_quads)(weights, factor, ROWS, dim, groups, entries, ahead, near, out);
}

/* Computes what a weight of 1 is multiplied with so that it and the scale of its value fit two bytes, 65,280 at most: scales
 * [GROUPS]. Returns what their products are multiplied with: NaN if a value is not finite. */
static INLINE float NAME(value_scales)(const struct NAME(entries) *entries, __m512 *scales) {
    __m512 most = _mm512_setzero_ps();
    __mmask16 strange = 0;
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++) {
        scales[g] = _mm512_maskz_loadu_ps(entries->inside[g], entries->value_scales[g]);
        strange |= _mm512_cmp_ps_mask(scales[g], scales[g], _CMP_UNORD_Q);
        most = _mm512_max_ps(most, scales[g]);
    }
    const float largest = _mm512_reduce_max_ps(most);
    const int usable = largest > SMALLEST;
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++)
        scales[g] = _mm512_mul_ps(scales[g], _mm512_set1_ps(usable ? 65280.0f / largest : 0.0f));
    return strange ? NAN : usable ? largest / 65280.0f : 0.0f;
}

/* Adds KEYS keys of one KV head to the rows [first, first + rows) of the state. */
static INLINE void NAME(add_keys)(const struct layer *layer, const struct tile *tile, const struct NAME(group) *groups,
                                  int of_token, int first, int rows, const int dim, const struct NAME(entries) *entries,
                                  struct NAME(ahead) *ahead, const struct NAME(entries) *near, struct NAME(int8_state) *state) {
    const int hidden = NAME(hides)(layer, tile, groups);
    V scores[ROWS * GROUPS];
    uint8_t weights[ROWS * 2 * KEYS] ALIGNED;
    __m512 scales[GROUPS] = {{0}};
    float factor = 0.0f;
    for (int row = first, last = first + rows; row < last; row += ROWS) {
        const int count = last - row < ROWS ? last - row : ROWS;
        NAME(score_int8)(state, row, count, dim, entries, ahead, near, scores);
        if (row == first) /* not earlier: they may still be on their way from memory */
            factor = NAME(value_scales)(entries, scales);
        for (int g = 0; g < GROUPS; g++) {
            NAME(fetch_near)(near->keys[g] + dim / 4 * entries->quads);
            NAME(fetch_near)(near->value_scales[g]);
        }
        for (int r = 0; r < count; r++)
            NAME(weigh_bytes)(layer, groups, tile->position + (row + r - first) / of_token, hidden, dim, row + r, scales,
                              scores + r * GROUPS, weights + r * 2 * KEYS, ahead, state);
        NAME(add_int8)(weights, factor, count, dim, groups, entries, ahead, near, state->out + row * dim);
    }
}

/* Brings a piece of a row's output into the order of its elements. */
static INLINE void NAME(order)(const float *out, V *part) {
    const __m512 a = _mm512_load_ps(out), b = _mm512_load_ps(out + LANES);
    const __m512 c = _mm512_load_ps(out + 2 * LANES), d = _mm512_load_ps(out + 3 * LANES);
    const __m512 low = _mm512_shuffle_f32x4(a, b, 0x44), high = _mm512_shuffle_f32x4(a, b, 0xee);
    const __m512 low2 = _mm512_shuffle_f32x4(c, d, 0x44), high2 = _mm512_shuffle_f32x4(c, d, 0xee);
    part[0] = (V)_mm512_shuffle_f32x4(low, low2, 0x88), part[1] = (V)_mm512_shuffle_f32x4(low, low2, 0xdd);
    part[2] = (V)_mm512_shuffle_f32x4(high, high2, 0x88), part[3] = (V)_mm512_shuffle_f32x4(high, high2, 0xdd);
}

static INLINE void NAME(int8_body)(const struct work *work, const struct layer *layer, const struct tile *tile, const int dim) {
    const int of_token = (int)(work->heads / work->kv_heads), rows = tile->count * of_token, all = rows * tile->heads;
    const int64_t step = head_bytes(work), size = work->block_size;
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
        struct NAME(ahead) ahead = NAME(ahead_of)(layer, &walk, tile->kv_head * step, tile->heads * step);
        struct NAME(entries) now = NAME(entries_of)(layer, walk.now, tile->kv_head * step, size, dim);
        for (int head = 0; head < tile->heads; head++) {
            const int last = head + 1 == tile->heads;
            const struct NAME(group) *groups = last && walk.next[0].count > 0 ? walk.next : walk.now;
            const int64_t place = (tile->kv_head + (last ? 0 : head + 1)) * step;
            const struct NAME(entries) near = NAME(entries_of)(layer, groups, place, size, dim);
            NAME(add_keys)(layer, tile, walk.now, of_token, head * rows, rows, dim, &now, &ahead, &near, &state);
            now = near;
        }
    }
    for (int r = 0; r < all; r++) {
        const struct NAME(place) place = NAME(place_of)(work, tile, r);
        const float sum = NAME(sum)(state.sums[r]);
        const V inverse = (V){0} + 1.0f / sum;
        for (int d = 0; d < dim; d += PIECE) {
            V part[4];
            NAME(order)(state.out + r * dim + d, part);
            for (int i = 0; i < 4; i++)
                NAME(store)(layer->out, (place.token * work->heads + place.head) * dim + d + i * LANES, part[i] * inverse, 1);
        }
    }
}

#undef ROWS
#undef PIECE
#undef SCORE_LINES
#undef WEIGH_LINES
#undef ADD_LINES
#undef WORD
