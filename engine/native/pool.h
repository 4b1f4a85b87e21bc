/* Threads that compute one step together: started once, asleep between steps, spinning briefly between phases. */
#ifndef SLUICE_POOL_H
#define SLUICE_POOL_H
#include <stdatomic.h>
#include <stdint.h>

#define MAX_THREADS 256

/* Called on every thread of the team, `thread` in [0, threads). */
typedef void (*pool_function)(void *context, int thread, int threads);

/* Runs `function` on `threads` threads, the caller's included, or on as many as could be started; returns when all have
 * returned. A call from another thread meanwhile (a second engine in the process) waits for its turn. */
void pool_run(int threads, pool_function function, void *context);

/* Waits until every thread of the team is here. What they wrote before is seen after. */
void pool_barrier(void);

/* Items [0, count) of a phase, handed out one by one: a thread that was held up gets fewer. `next` begins at 0. */
static inline int pool_take(_Atomic int64_t *next, int64_t count, int64_t *item) {
    *item = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
    return *item < count;
}
#endif
