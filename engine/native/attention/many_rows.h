/* One tile of paged attention with many query rows: tokens of a chunk, or the query heads of one KV head.
 *
 * Included once per instruction set, after few_rows.h. Query rows are the lanes: queries, weights and sums are stored
 * [..., rows], and an element of a key or value is multiplied with a register of rows. So no key is transposed, and
 * softmax needs nothing across lanes.
 *
 * Softmax is computed online as in few_rows.h, KEYS keys at a time. A NaN reaches every row that attends to it, and may
 * reach the tokens before it in the same tile, because its value is multiplied with their weights of 0.
 */
#define KEYS 64 /* keys per update of the softmax */
#define EACH 4  /* keys, or elements of values, that share a register of rows */
#define MOST 3  /* registers of rows: EACH × MOST sums must stay in registers */

/* sums[e] += Σ over i < count of from[e · apart + i · next] · rows[i, ...], with `many` registers of rows. */
static INLINE void NAME(add_products)(const float *from, int64_t apart, int64_t next, int64_t count, const float *rows,
                                      int64_t stride, const int many, V (*sums)[MOST]) {
    V sum[EACH][MOST];
#pragma GCC unroll 4
    for (int e = 0; e < EACH; e++)
#pragma GCC unroll 3
        for (int r = 0; r < many; r++)
            sum[e][r] = sums[e][r];
    for (int64_t i = 0; i < count; i++) {
        V row[MOST];
#pragma GCC unroll 3
        for (int r = 0; r < many; r++)
            memcpy(&row[r], rows + i * stride + r * LANES, sizeof(V));
#pragma GCC unroll 4
        for (int e = 0; e < EACH; e++)
#pragma GCC unroll 3
            for (int r = 0; r < many; r++)
                sum[e][r] += from[e * apart + i * next] * row[r];
    }
#pragma GCC unroll 4
    for (int e = 0; e < EACH; e++)
#pragma GCC unroll 3
        for (int r = 0; r < many; r++)
            sums[e][r] = sum[e][r];
}

/* out[o, rows] = (zero or out) + Σ over i < count of from[o, i] · rows[i, rows], for o < outer, a multiple of EACH.
 * from[o, i] is at o · apart + i · next. */
static __attribute__((noinline)) void NAME(product_of_rows)(const float *from, int64_t apart, int64_t next,
                                                            int64_t outer, int64_t count, const float *rows,
                                                            int registers, int added, float *out) {
    const int64_t stride = (int64_t)registers * LANES;
    const int units = (registers + MOST - 1) / MOST;
    for (int unit = 0, first = 0; unit < units; unit++) {
        const int many = (registers - first + units - unit - 1) / (units - unit); /* nearly equal sizes */
        const float *part = rows + first * LANES;
        for (int64_t o = 0; o < outer; o += EACH) {
            V sums[EACH][MOST] = {{{0}}};
            float *to = out + o * stride + first * LANES;
            for (int e = 0; added && e < EACH; e++)
                for (int r = 0; r < many; r++)
                    memcpy(&sums[e][r], to + e * stride + r * LANES, sizeof(V));
            if (many == 3)
                NAME(add_products)(from + o * apart, apart, next, count, part, stride, 3, sums);
            else if (many == 2)
                NAME(add_products)(from + o * apart, apart, next, count, part, stride, 2, sums);
            else
                NAME(add_products)(from + o * apart, apart, next, count, part, stride, 1, sums);
            for (int e = 0; e < EACH; e++)
                for (int r = 0; r < many; r++)
                    memcpy(to + e * stride + r * LANES, &sums[e][r], sizeof(V));
        }
        first += many;
    }
}

struct NAME(many) { /* state of a tile between keys; `stride` rows, of which the last are padding */
    int registers, stride;
    int64_t position[MAX_ROWS];              /* of each row's token */
    float query[MAX_DIM * MAX_ROWS] ALIGNED; /* [dim, stride], scaled */
    float out[MAX_DIM * MAX_ROWS] ALIGNED;   /* [dim, stride] */
    V sums[MAX_ROWS / LANES], highest[MAX_ROWS / LANES];
};

/* Turns scores [KEYS, stride] of the keys from position `at` on, of which `count` exist, into weights, in place. */
static INLINE void NAME(weigh)(const struct layer *layer, int64_t at, int count, int dim, float *scores,
                               struct NAME(many) *many) {
    const int64_t stride = many->stride, window = layer->window;
    for (int r = 0; r < many->registers; r++) {
        const int64_t *position = many->position + r * LANES; /* ascending */
        const int hidden = count < KEYS || at + KEYS - 1 > position[0] || (window > 0 && at <= position[LANES - 1] - window);
        V oldest = {0}, newest = {0}, top = many->highest[r];
        for (int lane = 0; hidden && lane < LANES; lane++) {
            newest[lane] = (float)(position[lane] - at < count ? position[lane] - at : count - 1);
            oldest[lane] = window > 0 ? (float)(position[lane] - window + 1 - at) : 0.0f;
        }
        V *first = (V *)(scores + r * LANES), *const end = first + KEYS * many->registers;
        for (V *score = first; layer->softcap > 0 && score < end; score += many->registers)
            *score = NAME(cap)(*score, layer->softcap);
        for (int j = 0; hidden && j < KEYS; j++) {
            V *score = first + j * many->registers;
            *score = PICK(newest < (float)j, (V){0} - INFINITY, *score);
            *score = PICK(oldest > (float)j, (V){0} - INFINITY, *score);
        }
        for (V *score = first; score < end; score += many->registers)
            top = PICK(*score > top, *score, top);
        /* No key so far: weights are 0, not e^(-inf + inf). */
        const V base = PICK(top == -INFINITY, (V){0}, top), shrink = NAME(exp)(many->highest[r] - base);
        V sum = many->sums[r] * shrink;
        for (V *score = first; score < end; score += many->registers) {
            *score = NAME(exp_to_88)(*score - base);
            sum += *score;
        }
        for (int d = 0; d < dim; d++)
            *(V *)(many->out + d * stride + r * LANES) *= shrink;
        many->sums[r] = sum;
        many->highest[r] = top;
    }
}

/* Reads up to KEYS keys and values [KEYS, dim] of a head, from position `at` on; zeros where there are fewer. Keys of 8-bit
 * integers become [dim, KEYS]. Returns how many. */
static INLINE int NAME(gather)(const struct work *work, const struct layer *layer, const struct tile *tile, int64_t at,
                               int64_t last, const int dim, const int bf16, const int int8, float *keys,
                               float *values) {
    const int64_t *table = work->tables + work->table_first[tile->row], size = work->block_size;
    const int64_t stride = work->kv_heads * entry_bytes(work);
    const int count = (int)(last - at + 1 < KEYS ? last - at + 1 : KEYS);
    if (int8 && count < KEYS)
        memset(keys, 0, sizeof(float) * (size_t)(KEYS * dim));
    for (int64_t done = 0; done < count;) {
        const int64_t block = table[(at + done) / size], first = (at + done) % size, most = int8 ? LANES : KEYS;
        const int64_t room = size - first < most ? size - first : most, span = room < count - done ? room : count - done;
        const int64_t from = place_of_token(work, block, first) + tile->kv_head * head_bytes(work);
        const char *key = (const char *)layer->key_cache + from, *value = (const char *)layer->value_cache + from;
        if (int8)
            NAME(read_keys)(key, first, size, (int)span, dim, KEYS, keys + done);
        for (int64_t j = 0; j < span; j++)
            if (int8)
                NAME(read_value)(value, first + j, size, dim, values + (done + j) * dim);
            else
                for (int d = 0; d < dim; d += LANES) {
                    *(V *)(keys + (done + j) * dim + d) = NAME(load)(key + j * stride, d, bf16);
                    *(V *)(values + (done + j) * dim + d) = NAME(load)(value + j * stride, d, bf16);
                }
        done += span;
    }
    if (!int8)
        memset(keys + count * dim, 0, sizeof(float) * (size_t)((KEYS - count) * dim));
    memset(values + count * dim, 0, sizeof(float) * (size_t)((KEYS - count) * dim));
    return count;
}

static INLINE void NAME(many_body)(const struct work *work, const struct layer *layer, const struct tile *tile,
                                   const int dim, const int bf16, const int int8) {
    const int group = (int)(work->heads / work->kv_heads), rows = tile->count * group;
    const int64_t last = tile->position + tile->count - 1;
    float keys[KEYS * MAX_DIM] ALIGNED, values[KEYS * MAX_DIM] ALIGNED, scores[KEYS * MAX_ROWS] ALIGNED;
    struct NAME(many) many = {.registers = (rows + LANES - 1) / LANES};
    const int stride = many.stride = many.registers * LANES;

    for (int r = 0; r < stride; r++) {
        const int row = r < rows ? r : rows - 1; /* padding repeats the last row */
        const int64_t token = tile->token + row / group, head = tile->kv_head * group + row % group;
        const int64_t from = token * layer->query_token + head * layer->query_head;
        many.position[r] = tile->position + row / group;
        for (int d = 0; d < dim; d++)
            many.query[d * stride + r] = NAME(get)(layer->query, from + d, bf16) * layer->scale;
    }
    memset(many.out, 0, sizeof(float) * (size_t)(dim * stride));
    for (int r = 0; r < many.registers; r++) {
        many.sums[r] = (V){0};
        many.highest[r] = (V){0} - INFINITY;
    }
    int64_t at = layer->window > 0 ? tile->position - layer->window + 1 : 0;
    for (at = at < 0 ? 0 : at; at <= last; at += KEYS) {
        const int count = NAME(gather)(work, layer, tile, at, last, dim, bf16, int8, keys, values);
        NAME(product_of_rows)(keys, int8 ? 1 : dim, int8 ? KEYS : 1, KEYS, dim, many.query, many.registers, 0, scores);
        NAME(weigh)(layer, at, count, dim, scores, &many);
        NAME(product_of_rows)(values, 1, dim, dim, KEYS, scores, many.registers, 1, many.out);
    }
    for (int r = 0; r < many.registers; r++)
        for (int d = 0; d < dim; d++)
            *(V *)(many.out + d * stride + r * LANES) /= many.sums[r];
    for (int r = 0; r < rows; r++) {
        const int64_t to = ((tile->token + r / group) * work->heads + tile->kv_head * group + r % group) * dim;
        for (int d = 0; d < dim; d++)
            NAME(put)(layer->out, to + d, many.out[d * stride + r], bf16);
    }
}

#undef KEYS
#undef EACH
#undef MOST
