/* A wait spins for some ten microseconds, which is how much the phases of a step differ, and then sleeps. With fewer
 * free processors than threads, longer spinning would delay the very thread that is awaited. */
#include "pool.h"

#include <pthread.h>
#include <sched.h>

#define SPINS 2000 /* pauses of some 15 to 40 ns each */
#define YIELDS 1000 /* of some 0.3 us each, where no other thread wants the processor */
#define LINE 64
#define SIZE_BITS 9 /* low bits of `turn`: the team's size; the others count turns */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic int sleepers;
    _Atomic uint64_t turn; /* turn and size in one integer: a thread that wakes late never mixes two turns */
    pool_function function;
    void *context;
    int threads, workers;
    struct {
        _Atomic int arrived;
        _Atomic uint64_t passed;
    } barriers[2]; /* of all threads, and of those that do not sit out */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static pthread_mutex_t team = PTHREAD_MUTEX_INITIALIZER; /* held by the call for which the threads work */

static void reset(void) { /* after fork: the threads and the lock holders exist only in the parent */
    pthread_mutex_init(&team, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.changed, NULL);
    pool.threads = pool.workers = 0;
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.turn, 0);
    for (int i = 0; i < 2; i++)
        atomic_store(&pool.barriers[i].arrived, 0);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, reset); }

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t sleep_until_change(_Atomic uint64_t *word, uint64_t seen) {
    uint64_t now;
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1);
    while ((now = atomic_load(word)) == seen)
        pthread_cond_wait(&pool.changed, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.lock);
    return now;
}

static uint64_t wait_for_change(_Atomic uint64_t *word, uint64_t seen, struct reading *reading) {
    uint64_t now;
    for (int spin = 0; spin < SPINS;) {
        if ((now = atomic_load(word)) != seen)
            return now;
        if (reading->at < reading->end) { /* no spin: there is something to do */
            __builtin_prefetch(reading->at, 0, 2);
            reading->at += LINE;
        } else {
            pause_briefly();
            spin++;
        }
    }
    return sleep_until_change(word, seen);
}

static void change(_Atomic uint64_t *word, uint64_t value) {
    atomic_store(word, value); /* sequentially consistent: this thread sees the sleeper or the sleeper the value */
    if (atomic_load(&pool.sleepers) > 0) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.changed);
        pthread_mutex_unlock(&pool.lock);
    }
}

/* Arrives at a barrier of `threads` threads. Returns whether this one is the last, which lets the others pass. */
static int arrive(int barrier, int threads, uint64_t passed) {
    if (atomic_fetch_add(&pool.barriers[barrier].arrived, 1) != threads - 1)
        return 0;
    atomic_store(&pool.barriers[barrier].arrived, 0);
    change(&pool.barriers[barrier].passed, passed + 1);
    return 1;
}

static void wait_at(int barrier, int threads, struct reading *reading) {
    if (threads == 1)
        return;
    const uint64_t passed = atomic_load(&pool.barriers[barrier].passed);
    if (!arrive(barrier, threads, passed))
        wait_for_change(&pool.barriers[barrier].passed, passed, reading);
}

void pool_barrier(struct reading *reading) { wait_at(0, pool.threads, reading); }

void pool_barrier_without_last(struct reading *reading) { wait_at(1, pool.threads - 1, reading); }

void pool_sit_out(void) {
    const uint64_t passed = atomic_load(&pool.barriers[0].passed);
    if (arrive(0, pool.threads, passed))
        return;
    for (int i = 0; i < YIELDS; i++, sched_yield())
        if (atomic_load(&pool.barriers[0].passed) != passed)
            return;
    sleep_until_change(&pool.barriers[0].passed, passed);
}

static void *work(void *argument) {
    const int number = (int)(intptr_t)argument;
    uint64_t seen = 0;
    struct reading reading = {NULL, NULL};
    for (;;) {
        seen = wait_for_change(&pool.turn, seen, &reading);
        if (number < (int)(seen & ((1 << SIZE_BITS) - 1))) {
            reading = pool.function(pool.context, number, pool.threads);
            pool_barrier(&reading);
        }
    }
    return NULL;
}

static int started(int wanted) { /* starts missing workers; returns how many exist, up to `wanted` */
    while (pool.workers < wanted && pool.workers < MAX_THREADS - 1) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 4 << 20);
        int failed = pthread_create(&thread, &attributes, work, (void *)(intptr_t)(pool.workers + 1));
        pthread_attr_destroy(&attributes);
        if (failed)
            break;
        pool.workers++;
    }
    return pool.workers < wanted ? pool.workers : wanted;
}

void pool_run(int threads, pool_function function, void *context) {
    pthread_mutex_lock(&team);
    pool.function = function, pool.context = context;
    pool.threads = threads > 1 ? started(threads - 1) + 1 : 1;
    if (pool.threads > 1)
        change(&pool.turn, ((atomic_load(&pool.turn) >> SIZE_BITS) + 1) << SIZE_BITS | (uint64_t)pool.threads);
    struct reading reading = function(context, 0, pool.threads);
    pool_barrier(&reading);
    pthread_mutex_unlock(&team);
}
