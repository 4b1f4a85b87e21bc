/* Threads that compute one step together. They start once, sleep between steps and spin briefly between phases. */
#ifndef SLUICE_POOL_H
#define SLUICE_POOL_H
#include <stdatomic.h>
#include <stdint.h>

#define MAX_THREADS 256

struct reading { /* memory that a thread reads next; prefetched while it waits */
    const char *at, *end;
};

/* Called on every thread of the team, `thread` in [0, threads). Returns what the thread reads first in the next call, if
 * that is the same one: it is fetched until then. */
typedef struct reading (*pool_function)(void *context, int thread, int threads);

/* Runs `function` on `threads` threads including the caller, or on as many as can be started. It returns when all
 * have returned. A concurrent call (a second engine in the process) blocks until this one ends. */
void pool_run(int threads, pool_function function, void *context);

/* Waits until every thread of the team has arrived. Writes before the barrier are visible after it. `reading`: what the
 * wait is used for. */
void pool_barrier(struct reading *reading);

/* The same for all threads but the last one, which sits out meanwhile. */
void pool_barrier_without_last(struct reading *reading);

/* Called by the last thread in place of all phases up to a barrier of all threads: waits there, and leaves its processor to
 * any thread that wants it. */
void pool_sit_out(void);

/* Takes the next of the items [0, count) of a phase, so that a delayed thread takes fewer items. `next` starts at 0.
 * Returns 0 if no item is left. */
static inline int pool_take(_Atomic int64_t *next, int64_t count, int64_t *item) {
    *item = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
    return *item < count;
}
#endif
