/* Paged attention on the CPU without a gather of pages. The plain C interface is called through ctypes.
 *
 * A step's rows (single tokens and chunks of prompts, mixed) are split into tiles. A tile of a chunk is one KV head
 * and a few tokens. A tile of a single token is several KV heads, because the keys of all heads are adjacent and
 * memory traffic dominates its cost. Threads take tiles until none is left. The new keys and values are written to
 * their slots first.
 */
#include "attention.h"

#include <stdlib.h>
#include <string.h>

#include "../pool.h"

/* Targets, if a KV head has fewer query heads; with float32 a multiple of three registers of rows (many_rows.h). */
#define ROWS_OF_PAIRS 64
#define ROWS_OF_FLOATS 48
#define TILES_PER_THREAD 4 /* minimum for single tokens, so that threads finish together */

int attention_fits(const struct work *work) {
    return work->kv_heads >= 1 && work->heads % work->kv_heads == 0 && work->heads / work->kv_heads <= MAX_ROWS &&
           work->dim <= MAX_DIM && work->dim % 16 == 0 && work->dim >= 16 && work->block_size >= 1;
}

static int64_t tokens_of_tile(const struct work *work) {
    const int64_t group = work->heads / work->kv_heads;
    const int64_t most = work->bf16 ? ROWS_OF_PAIRS : ROWS_OF_FLOATS;
    return group >= most ? 1 : most / group;
}

/* KV heads per tile of a single token: all, or fewer if threads would be idle. */
static int64_t heads_of_tile(const struct work *work) {
    const int64_t room = MAX_ROWS / (work->heads / work->kv_heads);
    const int64_t fair = work->rows * work->kv_heads / (TILES_PER_THREAD * (work->threads > 1 ? work->threads : 1));
    const int64_t most = room < work->kv_heads ? room : work->kv_heads;
    return fair < 1 ? 1 : fair < most ? fair : most;
}

int64_t attention_count(const struct work *work) {
    const int64_t step = tokens_of_tile(work), each = heads_of_tile(work);
    int64_t count = 0;
    for (int64_t row = 0; row < work->rows; row++) {
        const int64_t tokens = work->row_first[row + 1] - work->row_first[row];
        count += tokens == 1 ? (work->kv_heads + each - 1) / each : (tokens + step - 1) / step * work->kv_heads;
    }
    return count;
}

void attention_cut(const struct work *work, struct tile *tiles) {
    const int64_t step = tokens_of_tile(work), each = heads_of_tile(work);
    for (int64_t row = work->rows - 1; row >= 0; row--) { /* chunks are last and take longest: start with them */
        const int64_t end = work->row_first[row + 1], single = end - work->row_first[row] == 1;
        for (int64_t token = work->row_first[row]; token < end; token += step)
            for (int64_t head = 0; head < work->kv_heads; head += single ? each : 1) {
                const int64_t left = end - token, heads = work->kv_heads - head;
                *tiles++ = (struct tile){.row = row,
                                         .token = token,
                                         .position = work->row_start[row] + token - work->row_first[row],
                                         .kv_head = head,
                                         .count = (int)(left < step ? left : step),
                                         .heads = (int)(!single ? 1 : heads < each ? heads : each)};
            }
    }
}

void attention_keep(const struct work *work, const struct kernels *kernels, const char *from, size_t apart, int64_t slot,
                    int64_t first, int64_t end, int keys, void *cache) {
    const int64_t size = work->block_size, step = head_bytes(work);
    char *to = (char *)cache + place_of_token(work, slot / size, slot % size) + first * step;
    for (int64_t head = first; head < end; head++, from += apart, to += step)
        if (work->int8_cache)
            kernels->keep(from, work->dim, (int)work->bf16, keys, to, slot % size, size);
        else
            memcpy(to, from, (size_t)step);
}

static void write_cache(const struct work *work, const struct layer *layer, const struct kernels *kernels) {
    const size_t item = work->bf16 ? 2 : 4;
    for (int64_t token = 0; token < work->tokens; token++) {
        const char *key = (const char *)layer->key + item * (size_t)(token * layer->key_token);
        const char *value = (const char *)layer->value + item * (size_t)(token * layer->value_token);
        const int64_t slot = work->slots[token], heads = work->kv_heads;
        attention_keep(work, kernels, key, item * (size_t)layer->key_head, slot, 0, heads, 1, layer->key_cache);
        attention_keep(work, kernels, value, item * (size_t)layer->value_head, slot, 0, heads, 0, layer->value_cache);
    }
}

struct job {
    const struct work *work;
    const struct layer *layer;
    const struct tile *tiles;
    const struct kernels *kernels;
    int64_t count;
    _Atomic int64_t next;
};

static struct reading take_tiles(void *context, int thread, int threads) {
    struct job *job = context;
    (void)thread;
    for (int64_t index; pool_take(&job->next, job->count, &index);) {
        struct tile tile = job->tiles[index];
        if (index + threads < job->count) /* where threads take turns, its own next one */
            tile.after = &job->tiles[index + threads];
        job->kernels->attend(job->work, job->layer, &tile);
    }
    if (job->kernels->leave != NULL)
        job->kernels->leave();
    return (struct reading){NULL, NULL};
}

/* Writes the step's keys and values to the cache and attends. `level` is the maximum instruction set level (the
 * tests try each). Returns 0 on success, 1 for unsupported sizes, 2 if out of memory. Nothing is written unless it
 * returns 0. */
int sluice_attend(const struct work *work, const struct layer *layer, int level) {
    if (!attention_fits(work))
        return 1;
    struct job job = {.work = work, .layer = layer, .kernels = kernels_of(level), .count = attention_count(work)};
    struct tile *tiles = malloc(sizeof(struct tile) * (size_t)(job.count ? job.count : 1));
    if (tiles == NULL)
        return 2;
    attention_cut(work, tiles);
    job.tiles = tiles;
    write_cache(work, layer, job.kernels);
    pool_run((int)(work->threads < job.count ? work->threads : job.count), take_tiles, &job);
    free(tiles);
    return 0;
}
