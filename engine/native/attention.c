/* Paged attention on the processor, without gathering pages: a plain C interface that ctypes calls.
 *
 * A step's rows (one token each, or chunks of prompts, mixed) are cut into tiles of one KV head and a few tokens;
 * threads take tiles until none is left. The new keys and values are written to their slots first. Instructions are
 * picked at run time: AVX-512, AVX2 or what every processor has.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 64 /* query rows of a tile: tokens × query heads of one KV head */
#define TILE_ROWS 32 /* aimed at, where a KV head has fewer query heads */
#define MAX_DIM 256
#define MAX_THREADS 256
#define INLINE inline __attribute__((always_inline))
#define ALIGNED __attribute__((aligned(64)))
/* Per lane: a where the comparison held, else b. */
#define PICK(mask, a, b) ((__typeof__(b))(((__typeof__(mask))(a) & (mask)) | ((__typeof__(mask))(b) & ~(mask))))

struct work { /* one step; all layers share it */
    int64_t rows, tokens, heads, kv_heads, dim, block_size, bf16, threads;
    const int64_t *row_first;   /* [rows + 1] flat index of each row's first token */
    const int64_t *row_start;   /* [rows] position of that token */
    const int64_t *table_first; /* [rows] where the row's block table begins in `tables` */
    const int64_t *tables;      /* flat block numbers */
    const int64_t *slots;       /* [tokens] where each token's key and value go */
};

struct layer { /* one layer's tensors; strides in elements, the last dimension is dense */
    const void *query;                       /* [tokens, heads, dim] */
    int64_t query_token, query_head;
    const void *key, *value;                 /* [tokens, kv_heads, dim] */
    int64_t key_token, key_head, value_token, value_head;
    void *key_cache, *value_cache;           /* [blocks, block_size, kv_heads, dim], dense */
    void *out;                               /* [tokens, heads, dim], dense */
    int64_t window;                          /* 0: none */
    float scale, softcap;                    /* softcap 0: none */
};

struct tile {
    int64_t row, token, position, kv_head;
    int count; /* tokens */
};

#define NAME(x) plain_##x
#define LANES 4
#include "tile.h"
#undef NAME
#undef LANES
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define NAME(x) avx2_##x
#define LANES 8
#include "tile.h"
#undef NAME
#undef LANES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define NAME(x) avx512_##x
#define LANES 16
#include "tile.h"
#undef NAME
#undef LANES
#pragma GCC pop_options
#endif

typedef void (*tile_function)(const struct work *, const struct layer *, const struct tile *);

/* 2: AVX-512, 1: AVX2, 0: neither. */
int sluice_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 1;
#endif
    return 0;
}

static tile_function function_of(int level) {
#if defined(__x86_64__)
    if (level >= 2)
        return avx512_run_tile;
    if (level == 1)
        return avx2_run_tile;
#endif
    (void)level;
    return plain_run_tile;
}

/* What the pool works on. One call at a time: the engine computes on one thread. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    const struct work *work;
    const struct layer *layer;
    const struct tile *tiles;
    tile_function function;
    int64_t count;
    _Atomic int64_t next;
    int64_t turn;
    int workers, wanted, busy;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .begin = PTHREAD_COND_INITIALIZER, .end = PTHREAD_COND_INITIALIZER};

static void take_tiles(void) {
    for (;;) {
        int64_t index = atomic_fetch_add(&pool.next, 1);
        if (index >= pool.count)
            return;
        pool.function(pool.work, pool.layer, &pool.tiles[index]);
    }
}

static void *worker(void *argument) {
    const int number = (int)(intptr_t)argument;
    int64_t seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.turn == seen || number >= pool.wanted) {
            seen = pool.turn;
            pthread_cond_wait(&pool.begin, &pool.lock);
        }
        seen = pool.turn;
        pthread_mutex_unlock(&pool.lock);
        take_tiles();
        pthread_mutex_lock(&pool.lock);
        if (--pool.busy == 0)
            pthread_cond_signal(&pool.end);
    }
    return NULL;
}

static int ready_workers(int wanted) { /* how many there are, up to `wanted`; starts those that are missing */
    while (pool.workers < wanted && pool.workers < MAX_THREADS) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 4 << 20);
        int failed = pthread_create(&thread, &attributes, worker, (void *)(intptr_t)pool.workers);
        pthread_attr_destroy(&attributes);
        if (failed)
            break;
        pool.workers++;
    }
    return pool.workers < wanted ? pool.workers : wanted;
}

static void run_all(const struct work *work, const struct layer *layer, const struct tile *tiles, int64_t count,
                    tile_function function) {
    pthread_mutex_lock(&pool.lock);
    pool.work = work, pool.layer = layer, pool.tiles = tiles, pool.count = count, pool.function = function;
    atomic_store(&pool.next, 0);
    int helpers = work->threads > 1 && count > 1 ? ready_workers((int)(work->threads < count ? work->threads : count) - 1) : 0;
    if (helpers > 0) {
        pool.wanted = pool.busy = helpers;
        pool.turn++;
        pthread_cond_broadcast(&pool.begin);
    }
    pthread_mutex_unlock(&pool.lock);
    take_tiles();
    if (helpers > 0) {
        pthread_mutex_lock(&pool.lock);
        while (pool.busy > 0)
            pthread_cond_wait(&pool.end, &pool.lock);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void write_cache(const struct work *work, const struct layer *layer) {
    const size_t item = work->bf16 ? 2 : 4, bytes = item * (size_t)work->dim;
    for (int64_t token = 0; token < work->tokens; token++)
        for (int64_t head = 0; head < work->kv_heads; head++) {
            size_t to = (size_t)(work->slots[token] * work->kv_heads + head) * bytes;
            memcpy((char *)layer->key_cache + to,
                   (const char *)layer->key + item * (size_t)(token * layer->key_token + head * layer->key_head), bytes);
            memcpy((char *)layer->value_cache + to,
                   (const char *)layer->value + item * (size_t)(token * layer->value_token + head * layer->value_head),
                   bytes);
        }
}

/* Writes the step's keys and values and attends. `level` caps the instructions (tests try each). Returns 0; 1: sizes
 * that this code has no room for; 2: out of memory. Nothing is written unless it returns 0. */
int sluice_attend(const struct work *work, const struct layer *layer, int level) {
    if (work->kv_heads < 1 || work->heads % work->kv_heads || work->heads / work->kv_heads > MAX_ROWS ||
        work->dim > MAX_DIM || work->dim % 16 || work->dim < 16 || work->block_size < 1)
        return 1;
    const int64_t group = work->heads / work->kv_heads, step = group >= TILE_ROWS ? 1 : TILE_ROWS / group;
    int64_t count = 0;
    for (int64_t row = 0; row < work->rows; row++)
        count += (work->row_first[row + 1] - work->row_first[row] + step - 1) / step * work->kv_heads;
    struct tile *tiles = malloc(sizeof(struct tile) * (size_t)(count ? count : 1));
    if (tiles == NULL)
        return 2;
    int64_t index = 0;
    for (int64_t row = work->rows - 1; row >= 0; row--) /* chunks come last and take longest: begin with them */
        for (int64_t token = work->row_first[row]; token < work->row_first[row + 1]; token += step)
            for (int64_t head = 0; head < work->kv_heads; head++) {
                int64_t left = work->row_first[row + 1] - token;
                tiles[index++] = (struct tile){row, token, work->row_start[row] + token - work->row_first[row], head,
                                               (int)(left < step ? left : step)};
            }
    write_cache(work, layer);
    int best = sluice_level();
    run_all(work, layer, tiles, count, function_of(level < best ? level : best));
    free(tiles);
    return 0;
}
