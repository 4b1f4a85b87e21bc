/* One forward pass while it is computed, and what its phases share. */
#ifndef SLUICE_PASS_H
#define SLUICE_PASS_H
#include <time.h>

#include "../pool.h"
#include "decoder.h"

#define OWN_ROWS 16 /* at most as many rows does each thread normalise for itself */
#define OWN_QUANTISED 4 /* the same where they are quantised too */

struct share { /* panels of one thread's part of a product that are taken */
    _Atomic int64_t taken;
    char padding[LINE - sizeof(int64_t)];
};

struct worker { /* one thread of a pass */
    int thread, threads;
    int without_last; /* whether the last thread sits out this layer */
    int64_t products; /* that it has begun */
    struct reading reading;
};

struct pass {
    const struct decoder *decoder;
    const struct work *work;                /* one per layer group, equal but for block tables and slots */
    struct step *step;
    const struct kernels *kernels;
    const struct tile *tiles;
    int64_t tile_count;
    _Atomic int64_t *next; /* one counter per phase */
    struct share *shares;  /* [3, threads], used by the products in turn */
    int singles;           /* whether all rows are single tokens */
    char *hidden, *normed, *mixed, *attended, *gated; /* [tokens, ...] */
    char *hidden_wanted, *attended_wanted;            /* rows of `wanted`, for the last layer */
    char *prepared;                                   /* [tokens, bytes_of_row]: the input of a product, unless its form is GIVEN */
    double begun;                                     /* seconds, monotonic */
    double effort;                                    /* layers computed so far; one with all tokens counts as 1 */
};

static inline double seconds_now(void) { /* monotonic */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline int64_t qkv_width(const struct work *work) {
    return (work->heads + 2 * work->kv_heads) * work->dim;
}

static inline size_t row_bytes(const struct pass *pass, int64_t size) { return (size_t)size * (pass->work->bf16 ? 2 : 4); }

static inline int64_t most_own_rows(const struct decoder *decoder) { return decoder->head.int8 ? OWN_QUANTISED : OWN_ROWS; }

/* Rows that each thread normalises for itself: all of them, or none if they are many. */
static inline int64_t own_rows(const struct decoder *decoder, int64_t rows) {
    return rows <= most_own_rows(decoder) ? rows : 0;
}

/* The form in which a product multiplies `rows` rows. */
static inline enum form form_of(const struct pass *pass, const struct product *product, int64_t rows) {
    return pass->kernels->form(product, rows, (int)pass->work->bf16);
}

/* Where a row of the prepared input of a product is. */
static inline char *prepared_row(const struct pass *pass, enum form form, int64_t size, int64_t row) {
    return pass->prepared + row * bytes_of_row(form, size, (int)pass->work->bf16);
}

static inline void prepare(const struct pass *pass, enum form form, const char *in, int64_t size, int64_t row) {
    prepare_row(pass->kernels, form, in, size, (int)pass->work->bf16, prepared_row(pass, form, size, row));
}

/* Waits for the other threads. Meanwhile it fetches what this thread reads next. */
static inline void wait_for_others(struct worker *worker) {
    if (worker->without_last)
        pool_barrier_without_last(&worker->reading);
    else
        pool_barrier(&worker->reading);
}
#endif
