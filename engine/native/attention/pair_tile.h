/* A tile of paged attention for processors that multiply pairs of bf16. It computes the same sums as few_rows.h without
 * widening keys and values in memory; in registers it does where that is faster (wide_pairs.h). Included by section.h if PAIRS is
 * defined. Weights are rounded to bf16 before the product with the values, as in torch; their sum is not rounded. The head
 * dimension is a multiple of 32.
 *
 * A softmax covers KEYS keys, and a few query rows at once: their sums stay in registers, in both products.
 */
#include "pair_keys.h"
#include "walk.h"
#ifdef TILES
#include "../amx/attention.h"
#define ROWS_AT_ONCE TILED_QUERIES
#else
#define ROWS_AT_ONCE VECTOR_ROWS
#endif
#define VECTOR_ROWS 6 /* times GROUPS sums, beside a register per group and one more */
#define LOG2E 1.44269504088896341f
#define PAIR(from) ({ int32_t both_; memcpy(&both_, from, sizeof both_); _mm512_set1_epi32(both_); })

/* State of a tile between keys: per query row the output sum, and the sum and maximum of the softmax. */
struct NAME(state) {
    float query[MAX_ROWS * MAX_DIM] ALIGNED; /* of bf16, unless these are widened */
    float out[MAX_ROWS * MAX_DIM] ALIGNED;
    V sums[MAX_ROWS];
    float highest[MAX_ROWS];
};

#define FETCH(pair) NAME(fetch_line)(&lines), NAME(fetch_line)(&lines)

/* Computes the scores of `rows` queries [rows, dim] with all keys: out [rows, GROUPS]. `wide`: whether queries are floats. `lines`
 * are fetched meanwhile. */
static INLINE void NAME(score)(const void *queries, const int dim, const uint16_t *keys, const int rows, const int wide,
                               struct NAME(lines) lines, V *out) {
    const uint16_t *query = queries;
    __m512 sum[VECTOR_ROWS][GROUPS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            sum[r][g] = _mm512_setzero_ps();
    if (wide)
        WIDE_SUMS(sum, rows, GROUPS, (const float *)queries, dim, keys, LANES * dim, 2 * LANES, dim / 2, FETCH)
    for (int d = 0; !wide && d < dim; d += 2) {
        __m512i key[GROUPS];
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            key[g] = _mm512_load_si512(keys + g * LANES * dim + d * LANES);
        FETCH(d / 2);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i pair = PAIR(query + r * dim + d);
#pragma GCC unroll 4
            for (int g = 0; g < GROUPS; g++)
                sum[r][g] = _mm512_dpbf16_ps(sum[r][g], (__m512bh)pair, (__m512bh)key[g]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++)
            out[r * GROUPS + g] = (V)sum[r][g];
}

/* Adds the values of KEYS keys: weights [rows, KEYS], floats if `wide`, `registers` of the output's at `values` and `out` [rows,
 * dim]. `lines` are fetched meanwhile; returns what is left of them. */
static INLINE struct NAME(lines) NAME(add_values)(const void *weights, const uint16_t *values, const int dim, const int rows,
                                                  const int registers, const int wide, struct NAME(lines) lines, float *out) {
    const uint16_t *weight = weights;
    __m512 sum[VECTOR_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int l = 0; l < registers; l++)
            sum[r][l] = _mm512_load_ps(out + r * dim + l * LANES);
    if (wide)
        WIDE_SUMS(sum, rows, registers, (const float *)weights, KEYS, values, 2 * LANES, 2 * dim, KEYS / 2, FETCH)
    for (int j = 0; !wide && j < KEYS; j += 2) {
        __m512i value[4];
#pragma GCC unroll 4
        for (int l = 0; l < registers; l++)
            value[l] = _mm512_load_si512(values + j * dim + 2 * l * LANES);
        FETCH(j / 2);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i pair = PAIR(weight + r * KEYS + j);
#pragma GCC unroll 4
            for (int l = 0; l < registers; l++)
                sum[r][l] = _mm512_dpbf16_ps(sum[r][l], (__m512bh)pair, (__m512bh)value[l]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int l = 0; l < registers; l++)
            _mm512_store_ps(out + r * dim + l * LANES, sum[r][l]);
    return lines;
}
#undef FETCH

/* 2^x for x of at most 0, with a relative error of 3e-6: far below what rounding to bf16 costs. NaN stays NaN, -inf gives 0. */
static INLINE __m512 NAME(power)(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x); /* the second operand if one is NaN */
    const __m512 whole = _mm512_roundscale_ps(x, 0), r = _mm512_sub_ps(x, whole);
    __m512 p = _mm512_set1_ps(9.5828490e-3f); /* minimax on [-1/2, 1/2] */
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.5906427e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.4024099e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.9312419e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, whole);
}

/* The keys of a group that a query at `position` attends to, a bit for each. */
static INLINE __mmask16 NAME(visible)(const struct NAME(group) *group, int64_t position, int64_t window) {
    const int64_t newest = position - group->at + 1, oldest = window > 0 ? newest - window : 0;
    const int end = (int)(newest < 0 ? 0 : newest < group->count ? newest : group->count);
    const int begin = (int)(oldest < 0 ? 0 : oldest < end ? oldest : end);
    return (__mmask16)((1u << end) - (1u << begin));
}

/* Turns a row's scores [GROUPS] into weights [KEYS], and rescales its sums if its maximum grows. `hidden`: whether keys are
 * masked or capped. `wide`: whether weights are floats, which are rounded to bf16 too. The maximum is that of scores times log2(e), so that weights are powers of two. */
static INLINE void NAME(weigh_row)(const struct layer *layer, const struct NAME(group) *groups, int64_t position, int hidden,
                                   const int dim, const int wide, V *scores, void *weights, V *sum, float *highest,
                                   float *out) {
    float factor = layer->scale * LOG2E;
    if (hidden) {
        for (int g = 0; g < GROUPS; g++) {
            const V scaled = scores[g] * layer->scale, capped = layer->softcap > 0 ? NAME(cap)(scaled, layer->softcap) : scaled;
            const __mmask16 seen = NAME(visible)(&groups[g], position, layer->window);
            scores[g] = (V)_mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen, (__m512)capped);
        }
        factor = LOG2E;
    }
    const __m512 left = _mm512_max_ps((__m512)scores[0], (__m512)scores[1]);
    const __m512 right = _mm512_max_ps((__m512)scores[2], (__m512)scores[3]);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(left, right)) * factor;
    if (top > *highest) {
        const float shrink = *highest == -INFINITY ? 0.0f : exp2f(*highest - top);
        *sum *= shrink;
        for (int d = 0; d < dim; d += LANES)
            *(V *)(out + d) *= shrink;
        *highest = top;
    }
    /* No key so far: weights are 0, not 2^(-inf + inf). A NaN score stays NaN. */
    const __m512 base = _mm512_set1_ps(*highest == -INFINITY ? 0.0f : *highest), scale = _mm512_set1_ps(factor);
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++) {
        scores[g] = (V)NAME(power)(_mm512_fmsub_ps((__m512)scores[g], scale, base));
        if (wide)
            NAME(store)(weights, g * LANES, NAME(round)(scores[g], 1), 0);
        else
            NAME(store)(weights, g * LANES, scores[g], 1);
    }
    *sum += (scores[0] + scores[1]) + (scores[2] + scores[3]);
}

#define SWITCH_FEW(CALL) \
    switch (rows) { \
    case 1: CALL(1); break; \
    case 2: CALL(2); break; \
    case 3: CALL(3); break; \
    case 4: CALL(4); break; \
    case 5: CALL(5); break; \
    default: CALL(VECTOR_ROWS); break; \
    }

/* The next two are functions of their own, so that their sums get all registers. */
static __attribute__((noinline)) void NAME(score_rows)(const void *query, int dim, const uint16_t *keys, int rows, int wide,
                                                       struct NAME(lines) lines, V *out) {
#define CALL(rows) \
    wide ? NAME(score)(query, dim, keys, rows, 1, lines, out) : NAME(score)(query, dim, keys, rows, 0, lines, out)
    SWITCH_FEW(CALL)
#undef CALL
}

static __attribute__((noinline)) void NAME(add_value_rows)(const void *weights, const uint16_t *values, int dim, int rows,
                                                           int wide, struct NAME(lines) lines, float *out) {
#define ADD(rows, wide) NAME(add_values)(weights, values + 2 * d, dim, rows, registers, wide, lines, out + d)
#define CALL(rows) lines = wide ? ADD(rows, 1) : ADD(rows, 0)
    int d = 0;
    for (const int registers = 4; d + registers * LANES <= dim; d += registers * LANES)
        SWITCH_FEW(CALL)
    const int registers = 2;
    if (d < dim)
        SWITCH_FEW(CALL)
#undef CALL
#undef ADD
}

/* Adds the keys of `pairs` to the rows [first, first + rows) of the state. Row r belongs to token r / of_token of the tile.
 * `tiled`: whether AMX tiles do the products. `ahead`: the next values, a half to be fetched during each product. */
static INLINE void NAME(add)(const struct layer *layer, const struct tile *tile, const struct NAME(group) *groups,
                             int of_token, int first, int rows, const int dim, int tiled,
                             const struct NAME(pairs) *pairs, const struct NAME(lines) *ahead, struct NAME(state) *state) {
    const int hidden = NAME(hides)(layer, tile, groups), wide = widens && !tiled;
    const size_t item = wide ? sizeof(float) : sizeof(uint16_t);
    const int most = tiled ? ROWS_AT_ONCE : VECTOR_ROWS;
    V scores[ROWS_AT_ONCE * GROUPS];
    float weights[ROWS_AT_ONCE * KEYS] ALIGNED; /* of bf16, unless these are widened */
    for (int row = first, last = first + rows; row < last; row += most) {
        const int count = last - row < most ? last - row : most;
        const char *query = (const char *)state->query + item * (size_t)(row * dim);
        float *out = state->out + row * dim;
#ifdef TILES
        if (tiled) {
            for (int half = 0; half < 2 && row == first; half++)
                for (struct NAME(lines) lines = ahead[half]; lines.key < 2 * LANES;)
                    NAME(fetch_line)(&lines);
            NAME(tiled_scores)((const uint16_t *)query, dim, pairs->keys, count, scores);
        } else
#endif
            NAME(score_rows)(query, dim, pairs->keys, count, wide, ahead[0], scores);
        for (int r = 0; r < count; r++)
            NAME(weigh_row)(layer, groups, tile->position + (row + r - first) / of_token, hidden, dim, wide,
                            scores + r * GROUPS, (char *)weights + item * (size_t)(r * KEYS), &state->sums[row + r], &state->highest[row + r], out + r * dim);
#ifdef TILES
        if (tiled)
            NAME(tiled_values)((const uint16_t *)weights, pairs->values, count, dim, out);
        else
#endif
            NAME(add_value_rows)(weights, pairs->values, dim, count, wide, ahead[1], out);
    }
}

static INLINE void NAME(pair_body)(const struct work *work, const struct layer *layer, const struct tile *tile,
                                   const int dim, const int int8) {
    const int of_token = (int)(work->heads / work->kv_heads), rows = tile->count * of_token, all = rows * tile->heads;
    const int64_t entry = int8 ? dim : entry_bytes(work), stride = int8 ? entry : work->kv_heads * entry, step = head_bytes(work);
    const char *keys = (const char *)layer->key_cache + tile->kv_head * step;
    const char *values = (const char *)layer->value_cache + tile->kv_head * step;
    const int tiled = work->tile_rows > 0 && rows >= work->tile_rows, wide = widens && !tiled;
    struct NAME(state) state;
    struct NAME(pairs) pairs;

    for (int r = 0; r < all; r++) { /* rows of one head are adjacent */
        const struct NAME(place) place = NAME(place_of)(work, tile, r);
        const uint16_t *query = (const uint16_t *)layer->query + place.token * layer->query_token + place.head * layer->query_head;
        if (wide)
            for (int d = 0; d < dim; d += LANES)
                NAME(store)(state.query, r * dim + d, NAME(load)(query, d, 1), 0);
        else
            memcpy((uint16_t *)state.query + r * dim, query, 2 * (size_t)dim);
        memset(state.out + r * dim, 0, sizeof(float) * (size_t)dim);
        state.sums[r] = (V){0};
        state.highest[r] = -INFINITY;
    }
    struct NAME(walk) walk = NAME(begin)(work, layer, tile);
    while (NAME(advance)(work, layer, tile, &walk)) {
        const struct NAME(group) *now = walk.now, *next = walk.next;
        for (int head = 0; head < tile->heads; head++) {
            struct NAME(lines) ahead[2] = {{.stride = stride, .entry = entry}, {.stride = stride, .entry = entry}};
            for (int g = 0; g < GROUPS; g++) {
                /* The next keys are scattered in memory: each head prefetches its own. */
                const int64_t base = now[g].base + head * step;
                const struct NAME(group) *after = next[g].count > 0 ? &next[g] : &now[g];
                const int64_t later = after->base + head * step;
                ahead[g / 2].group[g % 2] = values + later + (int8 ? after->offset * stride : 0);
                if (now[g].count > 0 && int8)
                    NAME(read_int8)(keys + base, values + base, now[g].offset, now[g].count, work->block_size, dim,
                                    keys + later + 4 * after->offset, g, &pairs);
                else if (now[g].count > 0)
                    NAME(read)(keys + base, values + base, stride, now[g].count, dim, keys + later, g, &pairs);
                else
                    NAME(read_nothing)(dim, g, &pairs);
            }
            NAME(add)(layer, tile, now, of_token, head * rows, rows, dim, tiled, &pairs, ahead, &state);
        }
    }
    for (int r = 0; r < all; r++) {
        const struct NAME(place) place = NAME(place_of)(work, tile, r);
        const float whole = NAME(sum)(state.sums[r]);
        for (int d = 0; d < dim; d += LANES)
            NAME(store)(layer->out, (place.token * work->heads + place.head) * dim + d, *(V *)(state.out + r * dim + d) / whole, 1);
    }
}

#ifdef QUADS
#include "int8_tile.h"
#endif
#undef PAIR
#undef LOG2E
#undef SWITCH_FEW
#undef ROWS_AT_ONCE
#undef VECTOR_ROWS
#undef GROUPS
#undef KEYS
