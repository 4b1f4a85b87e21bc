/* Operations on single rows: norms, widening, rotation by position, and the largest value. Included once per instruction set, after lanes.h.
 *
 * Rounding follows transformers: an RMS norm is computed in float32, rounded, then multiplied by its weight. In a
 * rotation each product is rounded, then the sum.
 */

static void NAME(norm)(const void *in, const void *weight, float epsilon, int64_t size, void *out, int bf16) {
    V squares = {0};
    for (int64_t i = 0; i < size; i += LANES) {
        V part = NAME(load)(in, i, bf16);
        squares += part * part;
    }
    const float scale = 1.0f / sqrtf(NAME(sum)(squares) / (float)size + epsilon);
    for (int64_t i = 0; i < size; i += LANES) {
        V part = NAME(round)(NAME(load)(in, i, bf16) * scale, bf16);
        NAME(store)(out, i, part * NAME(load)(weight, i, bf16), bf16);
    }
}

/* Widens a row of bf16 to float32. */
static void NAME(widen_row)(const void *in, int64_t size, void *out) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        NAME(store)(out, i, NAME(load)(in, i, 1), 0);
    for (; i < size; i++)
        NAME(put)(out, i, NAME(get)(in, i, 1), 0);
}

/* Returns the largest value and its index, the lowest of equal ones; NaN if a value is NaN. */
static float NAME(largest)(const float *in, int64_t size, int64_t *index) {
    V best = (V){0} - INFINITY;
    NAME(ints) at = {0}, strange = {0}, place;
    int64_t i = 0;
    for (int lane = 0; lane < LANES; lane++)
        place[lane] = lane;
    for (; i + LANES <= size; i += LANES, place += LANES) {
        const V part = NAME(load)(in, i, 0);
        const NAME(ints) more = part > best;
        best = PICK(more, part, best);
        at = (more & place) | (~more & at);
        strange |= part != part;
    }
    float found = -INFINITY;
    int64_t where = 0;
    int odd = 0;
    for (int lane = 0; lane < LANES; lane++) {
        odd |= strange[lane];
        if (best[lane] > found || (best[lane] == found && at[lane] < where))
            found = best[lane], where = at[lane];
    }
    for (; i < size; i++) {
        odd |= in[i] != in[i];
        if (in[i] > found)
            found = in[i], where = i;
    }
    *index = where;
    return odd ? NAN : found;
}

/* Rotates one head in place: cos and sin [size / 2]. */
static void NAME(rotate)(void *head, const void *cosine, const void *sine, int64_t size, int bf16) {
    const int64_t half = size / 2;
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        const V low = NAME(load)(head, i, bf16), high = NAME(load)(head, half + i, bf16);
        const V c = NAME(load)(cosine, i, bf16), s = NAME(load)(sine, i, bf16);
        NAME(store)(head, i, NAME(round)(low * c, bf16) - NAME(round)(high * s, bf16), bf16);
        NAME(store)(head, half + i, NAME(round)(high * c, bf16) + NAME(round)(low * s, bf16), bf16);
    }
    for (; i < half; i++) {
        const float low = NAME(get)(head, i, bf16), high = NAME(get)(head, half + i, bf16);
        const float c = NAME(get)(cosine, i, bf16), s = NAME(get)(sine, i, bf16);
        NAME(put)(head, i, NAME(rounded)(low * c, bf16) - NAME(rounded)(high * s, bf16), bf16);
        NAME(put)(head, half + i, NAME(rounded)(high * c, bf16) + NAME(rounded)(low * s, bf16), bf16);
    }
}
