/* One tile of paged attention: up to MAX_ROWS query rows of one KV head over all the keys they may see.
 *
 * Included once per instruction set by attention.c, which sets NAME(x), to give each copy its own names, and LANES, the
 * floats of one register there: 16 with AVX-512, 8 with AVX2, else 4. Written with GCC's vector types, so the compiler
 * picks the instructions. Keys are taken LANES at a time.
 *
 * Softmax is computed online (Milakov and Gimelshein, arXiv 1805.02867): per row a running maximum and sum, rescaled
 * when the maximum grows. NaN is kept: one in a key, value or query reaches the output of every row that sees it.
 */

typedef float NAME(floats) __attribute__((vector_size(4 * LANES), may_alias));
typedef uint32_t NAME(words) __attribute__((vector_size(4 * LANES)));
typedef int32_t NAME(ints) __attribute__((vector_size(4 * LANES)));
typedef uint16_t NAME(halves) __attribute__((vector_size(2 * LANES)));
typedef float NAME(v4) __attribute__((vector_size(16)));
#define V NAME(floats)

static INLINE V NAME(load)(const void *from, int64_t index, int bf16) {
    V out;
    if (bf16) {
        NAME(halves) half;
        memcpy(&half, (const uint16_t *)from + index, sizeof half);
        NAME(words) wide = __builtin_convertvector(half, NAME(words)) << 16;
        memcpy(&out, &wide, sizeof out);
    } else {
        memcpy(&out, (const float *)from + index, sizeof out);
    }
    return out;
}

static INLINE void NAME(store)(void *to, int64_t index, V in, int bf16) {
    if (!bf16) {
        memcpy((float *)to + index, &in, sizeof in);
        return;
    }
    NAME(words) bits;
    memcpy(&bits, &in, sizeof bits);
    NAME(words) rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* to nearest even */
    NAME(words) isnan = (NAME(words))(in != in);
    rounded = (isnan & 0x7fc0) | (~isnan & rounded);
    NAME(halves) half = __builtin_convertvector(rounded, NAME(halves));
    memcpy((uint16_t *)to + index, &half, sizeof half);
}

static INLINE float NAME(sum)(V x) {
#if LANES == 16
    typedef float v8 __attribute__((vector_size(32)));
    v8 half = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    V half = x;
#endif
#if LANES >= 8
    NAME(v4) b = __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
#else
    NAME(v4) b = half;
#endif
    return (b[0] + b[1]) + (b[2] + b[3]);
}

static INLINE float NAME(max)(V x) {
#if LANES == 16
    typedef float v8 __attribute__((vector_size(32)));
    v8 low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
    v8 high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    v8 half = PICK(low > high, low, high);
#else
    V half = x;
#endif
#if LANES >= 8
    NAME(v4) left = __builtin_shufflevector(half, half, 0, 1, 2, 3);
    NAME(v4) right = __builtin_shufflevector(half, half, 4, 5, 6, 7);
    NAME(v4) b = PICK(left > right, left, right);
#else
    NAME(v4) b = half;
#endif
    float c = b[0] > b[1] ? b[0] : b[1], d = b[2] > b[3] ? b[2] : b[3];
    return c > d ? c : d;
}

/* e^x by range reduction and a polynomial of degree 6 (Cephes expf): error about 2 ulp. Below -87 it is 0, above 88
 * e^88; NaN stays NaN, because no comparison with it is true. */
static INLINE V NAME(exp)(V x) {
    const V zero = {0};
    V clamped = PICK(x > 88.0f, zero + 88.0f, x);
    NAME(ints) tiny = x < -87.0f;
    clamped = PICK(tiny, zero, clamped);
    V scaled = clamped * 1.44269504088896341f;
    NAME(ints) sane = scaled == scaled;
    scaled = PICK(sane, scaled, zero);
    V half = PICK(scaled < 0.0f, zero - 0.5f, zero + 0.5f);
    NAME(ints) whole = __builtin_convertvector(scaled + half, NAME(ints));
    V n = __builtin_convertvector(whole, V);
    V r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    V p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    NAME(ints) bits = (whole + 127) << 23;
    V power;
    memcpy(&power, &bits, sizeof power);
    return PICK(tiny, zero, p * power);
}

static INLINE V NAME(cap)(V scores, float softcap) { /* softcap · tanh(score / softcap) */
    V e = NAME(exp)(scores * (2.0f / softcap));
    return softcap - 2.0f * softcap / (e + 1.0f);
}

static INLINE void NAME(body)(const struct work *work, const struct layer *layer, const struct tile *tile,
                              const int dim, const int bf16) {
    const int group = (int)(work->heads / work->kv_heads), rows = tile->count * group, lanes = dim / LANES, item = bf16 ? 2 : 4;
    const int64_t last = tile->position + tile->count - 1, stride = work->kv_heads * (int64_t)dim;
    const int64_t *table = work->tables + work->table_first[tile->row];
    float query[MAX_ROWS * MAX_DIM] ALIGNED, out[MAX_ROWS * MAX_DIM] ALIGNED;
    float keys[LANES * MAX_DIM] ALIGNED, values[LANES * MAX_DIM] ALIGNED, turned[LANES * MAX_DIM] ALIGNED;
    V weights[MAX_ROWS], sums[MAX_ROWS];
    float highest[MAX_ROWS];

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
        const int64_t offset = at % work->block_size, block = table[at / work->block_size];
        int64_t room = work->block_size - offset, left = last - at + 1;
        const int count = (int)(room < LANES ? (room < left ? room : left) : (left < LANES ? left : LANES));
        const int64_t base = (block * work->block_size + offset) * stride + tile->kv_head * dim;
        if (at + count <= last) { /* the next keys lie scattered: ask for them now */
            const int64_t to = at + count;
            const int64_t next = (table[to / work->block_size] * work->block_size + to % work->block_size) * stride +
                                 tile->kv_head * dim;
            int64_t span = work->block_size - to % work->block_size;
            span = span < LANES ? span : LANES;
            for (int64_t j = 0; j < span; j++)
                for (int byte = 0; byte < dim * item; byte += 64) {
                    __builtin_prefetch((const char *)layer->key_cache + (next + j * stride) * item + byte);
                    __builtin_prefetch((const char *)layer->value_cache + (next + j * stride) * item + byte);
                }
        }
        for (int j = 0; j < count; j++)
            for (int l = 0; l < lanes; l++) {
                V k = NAME(load)(layer->key_cache, base + j * stride + LANES * l, bf16);
                V v = NAME(load)(layer->value_cache, base + j * stride + LANES * l, bf16);
                memcpy(keys + j * dim + LANES * l, &k, sizeof k);
                memcpy(values + j * dim + LANES * l, &v, sizeof v);
            }
        const int many = rows >= 8; /* from here on, turning the keys costs less than summing across each dot product */
        if (many)
            for (int d = 0; d < dim; d++)
                for (int j = 0; j < LANES; j++)
                    turned[d * LANES + j] = j < count ? keys[j * dim + d] : 0.0f;
        if (many) {
            int r = 0;
            for (; r + 4 <= rows; r += 4) { /* four rows share each load of a key */
                V a = {0}, b = {0}, c = {0}, e = {0};
                for (int d = 0; d < dim; d++) {
                    const V key = *(const V *)(turned + d * LANES);
                    a += query[r * dim + d] * key, b += query[(r + 1) * dim + d] * key;
                    c += query[(r + 2) * dim + d] * key, e += query[(r + 3) * dim + d] * key;
                }
                weights[r] = a, weights[r + 1] = b, weights[r + 2] = c, weights[r + 3] = e;
            }
            for (; r < rows; r++) {
                V a = {0};
                for (int d = 0; d < dim; d++)
                    a += query[r * dim + d] * *(const V *)(turned + d * LANES);
                weights[r] = a;
            }
        } else {
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
            V scores = weights[r];
            if (layer->softcap > 0)
                scores = NAME(cap)(scores, layer->softcap);
            const int64_t position = tile->position + r / group;
            const int64_t oldest = layer->window > 0 ? position - layer->window + 1 : 0;
            if (count < LANES || at + count - 1 > position || at < oldest)
                for (int j = 0; j < LANES; j++)
                    if (j >= count || at + j > position || at + j < oldest)
                        scores[j] = -INFINITY;
            const float top = NAME(max)(scores);
            if (top > highest[r]) {
                const float shrink = highest[r] == -INFINITY ? 0.0f : expf(highest[r] - top);
                sums[r] *= shrink;
                for (int l = 0; l < lanes; l++)
                    *(V *)(out + r * dim + LANES * l) *= shrink;
                highest[r] = top;
            }
            /* Nothing seen yet: weights are 0, not e^(-inf + inf); a NaN score keeps its NaN. */
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

static void NAME(run_tile)(const struct work *work, const struct layer *layer, const struct tile *tile) {
    if (work->bf16) {
        if (work->dim == 64)
            NAME(body)(work, layer, tile, 64, 1);
        else if (work->dim == 128)
            NAME(body)(work, layer, tile, 128, 1);
        else
            NAME(body)(work, layer, tile, (int)work->dim, 1);
    } else {
        if (work->dim == 64)
            NAME(body)(work, layer, tile, 64, 0);
        else if (work->dim == 128)
            NAME(body)(work, layer, tile, 128, 0);
        else
            NAME(body)(work, layer, tile, (int)work->dim, 0);
    }
}

#undef V
