/* One tile of paged attention with few query rows: fewer than MANY_ROWS of one KV head over all their visible keys.
 *
 * Included once per instruction set, after lanes.h. Keys are processed LANES at a time.
 *
 * Softmax is computed online (Milakov and Gimelshein, arXiv 1805.02867): each row has a running maximum and sum,
 * which are rescaled when the maximum grows. A NaN in a key, value or query reaches the output of every row that
 * attends to it.
 */

static INLINE V NAME(cap)(V scores, float softcap) { /* softcap · tanh(score / softcap) */
    V e = NAME(exp)(scores * (2.0f / softcap));
    return softcap - 2.0f * softcap / (e + 1.0f);
}

/* Masks scores with -inf: keys from `count` on, before `oldest` and after `newest`. */
static INLINE V NAME(hide)(V scores, int count, int64_t oldest, int64_t newest) {
    const float lowest = oldest > 0 ? (float)oldest : 0.0f, end = (float)(newest < count ? newest : count - 1);
    V index;
    for (int j = 0; j < LANES; j++)
        index[j] = (float)j;
    scores = PICK(index < lowest, (V){0} - INFINITY, scores);
    return PICK(index > end, (V){0} - INFINITY, scores);
}

/* Caps and masks the scores of up to LANES keys, the first at position `at`, for a query at `position`. */
static INLINE V NAME(limit)(const struct layer *layer, V scores, int64_t at, int count, int64_t position) {
    const int64_t oldest = layer->window > 0 ? position - layer->window + 1 : 0;
    if (layer->softcap > 0)
        scores = NAME(cap)(scores, layer->softcap);
    if (count < LANES || at + count - 1 > position || at < oldest)
        scores = NAME(hide)(scores, count, oldest - at, position - at);
    return scores;
}

/* Scores of LANES keys, whose lanes they are, with `rows` queries [rows, dim]: keys [dim, LANES]. */
static INLINE void NAME(score_lanes)(const float *query, int rows, const int dim, const float *keys, V *scores) {
    for (int r = 0; r < rows; r++) {
        V sums[4] = {{0}, {0}, {0}, {0}};
        for (int d = 0; d < dim; d += 4)
#pragma GCC unroll 4
            for (int e = 0; e < 4; e++)
                sums[e] += query[r * dim + d + e] * *(const V *)(keys + (d + e) * LANES);
        scores[r] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

static INLINE void NAME(body)(const struct work *work, const struct layer *layer, const struct tile *tile,
                              const int dim, const int bf16, const int int8) {
    const int group = (int)(work->heads / work->kv_heads), rows = tile->count * group, lanes = dim / LANES;
    const int64_t last = tile->position + tile->count - 1, entry = entry_bytes(work), stride = work->kv_heads * entry;
    const int64_t size = work->block_size, own = tile->kv_head * head_bytes(work);
    const int64_t *table = work->tables + work->table_first[tile->row];
    float query[MANY_ROWS * MAX_DIM] ALIGNED, out[MANY_ROWS * MAX_DIM] ALIGNED;
    float keys[LANES * MAX_DIM] ALIGNED, values[LANES * MAX_DIM] ALIGNED;
    V weights[MANY_ROWS], sums[MANY_ROWS];
    float highest[MANY_ROWS];

    for (int r = 0; r < rows; r++) {
        int64_t token = tile->token + r / group, head = tile->kv_head * group + r % group;
        int64_t from = token * layer->query_token + head * layer->query_head;
        for (int l = 0; l < lanes; l++) {
            V part = NAME(load)(layer->query, from + LANES * l, bf16) * layer->scale;
            memcpy(query + r * dim + LANES * l, &part, sizeof part);
        }
        memset(out + r * dim, 0, sizeof(float) * (size_t)dim);
        sums[r] = (V){0};
        highest[r] = -INFINITY;
    }
    int64_t first = layer->window > 0 ? tile->position - layer->window + 1 : 0;
    first = first < 0 ? 0 : first;
    for (int64_t at = first; at <= last;) {
        const int64_t offset = at % size, room = size - offset, left = last - at + 1;
        const int count = (int)(room < LANES ? (room < left ? room : left) : (left < LANES ? left : LANES));
        const int64_t base = place_of_token(work, table[at / size], offset) + own;
        if (at + count <= last) { /* the next keys are scattered in memory: prefetch them */
            const int64_t to = at + count, next = place_of_token(work, table[to / size], to % size) + own;
            const int64_t rest = size - to % size, span = rest < LANES ? rest : LANES;
            /* Of 8-bit integers all that a block has of the head, once. */
            const int64_t lines = int8 ? (to % size == 0 ? 1 : 0) : span, bytes = int8 ? size * entry : entry;
            for (int64_t j = 0; j < lines; j++)
                for (int64_t byte = 0; byte < bytes; byte += 64) {
                    __builtin_prefetch((const char *)layer->key_cache + next + j * stride + byte, 0, 2);
                    __builtin_prefetch((const char *)layer->value_cache + next + j * stride + byte, 0, 2);
                }
        }
        if (int8) {
            NAME(read_keys)((const char *)layer->key_cache + base, offset, size, count, dim, LANES, keys);
            NAME(score_lanes)(query, rows, dim, keys, weights);
            for (int j = 0; j < count; j++)
                NAME(read_value)((const char *)layer->value_cache + base, offset + j, size, dim, values + j * dim);
        } else {
            for (int j = 0; j < count; j++)
                for (int d = 0; d < dim; d += LANES) {
                    *(V *)(keys + j * dim + d) = NAME(load)((const char *)layer->key_cache + base + j * stride, d, bf16);
                    *(V *)(values + j * dim + d) = NAME(load)((const char *)layer->value_cache + base + j * stride, d, bf16);
                }
            for (int r = 0; r < rows; r++) {
                float dots[LANES] ALIGNED = {0};
                for (int j = 0; j < count; j++) {
                    V dot = {0};
                    for (int l = 0; l < lanes; l++)
                        dot += *(const V *)(query + r * dim + LANES * l) * *(const V *)(keys + j * dim + LANES * l);
                    dots[j] = NAME(sum)(dot);
                }
                memcpy(&weights[r], dots, sizeof dots);
            }
        }
        for (int r = 0; r < rows; r++) {
            const V scores = NAME(limit)(layer, weights[r], at, count, tile->position + r / group);
            const float top = NAME(max)(scores);
            if (top > highest[r]) {
                const float shrink = highest[r] == -INFINITY ? 0.0f : expf(highest[r] - top);
                sums[r] *= shrink;
                for (int l = 0; l < lanes; l++)
                    *(V *)(out + r * dim + LANES * l) *= shrink;
                highest[r] = top;
            }
            /* No key so far: weights are 0, not e^(-inf + inf). A NaN score stays NaN. */
            weights[r] = NAME(exp)(scores - (highest[r] == -INFINITY ? 0.0f : highest[r]));
            sums[r] += weights[r];
        }
        for (int r = 0; r < rows; r++) {
            float *o = out + r * dim;
            const float *w = (const float *)&weights[r];
            int l = 0;
            for (; l + 4 <= lanes; l += 4) {
                V a = *(V *)(o + LANES * l), b = *(V *)(o + LANES * l + LANES);
                V c = *(V *)(o + LANES * l + 2 * LANES), e = *(V *)(o + LANES * l + 3 * LANES);
                for (int j = 0; j < count; j++) {
                    const float *v = values + j * dim + LANES * l;
                    a += w[j] * *(const V *)v;
                    b += w[j] * *(const V *)(v + LANES);
                    c += w[j] * *(const V *)(v + 2 * LANES);
                    e += w[j] * *(const V *)(v + 3 * LANES);
                }
                *(V *)(o + LANES * l) = a, *(V *)(o + LANES * l + LANES) = b;
                *(V *)(o + LANES * l + 2 * LANES) = c, *(V *)(o + LANES * l + 3 * LANES) = e;
            }
            for (; l < lanes; l++) {
                V a = *(V *)(o + LANES * l);
                for (int j = 0; j < count; j++)
                    a += w[j] * *(const V *)(values + j * dim + LANES * l);
                *(V *)(o + LANES * l) = a;
            }
        }
        at += count;
    }
    for (int r = 0; r < rows; r++) {
        int64_t to = ((tile->token + r / group) * work->heads + tile->kv_head * group + r % group) * dim;
        const float whole = NAME(sum)(sums[r]);
        for (int l = 0; l < lanes; l++)
            NAME(store)(layer->out, to + LANES * l, *(V *)(out + r * dim + LANES * l) / whole, bf16);
    }
}
