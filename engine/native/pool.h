/* Threads that compute one step together. They start once, sleep between steps and spin briefly between phases. */
#ifndef SLUICE_POOL_H
#define SLUICE_POOL_H
#include <stdatomic.h>
#include <stdint.h>

#define MAX_THREADS 256

/* Called on every thread of the team, `thread` in [0, threads). */
typedef void (*pool_function)(void *context, int thread, int threads);

/* Runs `function` on `threads` threads including the caller, or on as many as can be started. It returns when all
 * have returned. A concurrent call (a second engine in the process) blocks until this one ends. */
void pool_run(int threads, pool_function function, void *context);

struct reading { /* memory that a thread reads next; prefetched while it waits */
    const char *at, *end;
};

/* Waits until every thread of the team has arrived. Writes before the barrier are visible after it. `reading`: what the
 * wait is used for, or NULL. */
void pool_barrier(struct reading *reading);

/* Takes the next of the items [0, count) of a phase, so that a delayed thread takes fewer items. `next` starts at 0.
 * Returns 0 if no item is left. */
static inline int pool_take(_Atomic int64_t *next, int64_t count, int64_t *item) {
    *item = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
    return *item < count;
}
#endif
