/* Products of a pass, which take as long as reading their weights where rows are few. So reading must not stop: each thread
 * has its own part of each weight, which it reads in order and prefetches while it waits for the others. */
#include "phases.h"

#define PRODUCT_ROWS 96 /* rows per item of a product with a panel */
#define AHEAD_BYTES (192 << 10) /* of a weight are prefetched before its product; less than a level 2 cache */

/* The first panel of a thread's part of a product. */
static int64_t part_of(const struct pass *pass, const struct product *product, int thread, int threads) {
    return pass->kernels->panels(product) * thread / threads;
}

/* Multiplies rows, each thread with its own part of the panels and then with what the others have left. `after`: the
 * product that follows. */
static void multiply_parts(const struct pass *pass, struct worker *worker, const struct product *product,
                           const struct product *after, const void *in, int64_t rows, void *out, int64_t stride) {
    const int bf16 = (int)pass->work->bf16, thread = worker->thread, threads = worker->threads;
    const char *packed = product->packed, *following = after->packed;
    const size_t bytes = pass->kernels->panel_bytes(product, bf16), later = pass->kernels->panel_bytes(after, bf16);
    const enum form form = form_of(pass, product, rows);
    struct share *shares = pass->shares + worker->products % 3 * threads;
    following += later * (size_t)part_of(pass, after, thread, threads);
    for (int turn = 0; turn < threads; turn++) {
        const int owner = (thread + turn) % threads;
        const int64_t first = part_of(pass, product, owner, threads), count = part_of(pass, product, owner + 1, threads) - first;
        for (int64_t item; pool_take(&shares[owner].taken, count, &item);) {
            const char *next = packed + bytes * (size_t)(first + item + 1);
            pass->kernels->multiply(product, first + item, in, form, 0, rows, out, stride, bf16,
                                    turn == 0 && item + 1 < count ? next : following);
        }
    }
    const size_t own = later * (size_t)(part_of(pass, after, thread + 1, threads) - part_of(pass, after, thread, threads));
    worker->reading = (struct reading){following + (later < bytes ? later : bytes),
                                       following + (own < AHEAD_BYTES ? own : AHEAD_BYTES)};
}

void decoder_multiply(const struct pass *pass, struct worker *worker, _Atomic int64_t *next,
                      const struct product *product, const struct product *after, const void *in, int64_t rows,
                      void *out, int64_t stride) {
    const int64_t chunks = (rows + PRODUCT_ROWS - 1) / PRODUCT_ROWS, each = chunks ? (rows + chunks - 1) / chunks : 0;
    const int bf16 = (int)pass->work->bf16;
    /* No thread is left in the product before the last one, whose counters the next product uses. */
    struct share *later = pass->shares + (worker->products + 1) % 3 * worker->threads;
    atomic_store_explicit(&later[worker->thread].taken, 0, memory_order_relaxed);
    if (worker->without_last && worker->thread == 0)
        atomic_store_explicit(&later[worker->threads - 1].taken, 0, memory_order_relaxed);
    if (chunks == 1) {
        multiply_parts(pass, worker, product, after, in, rows, out, stride);
    } else {
        const size_t bytes = pass->kernels->panel_bytes(product, bf16);
        const enum form form = form_of(pass, product, rows);
        for (int64_t item; pool_take(next, chunks * pass->kernels->panels(product), &item);) {
            const int64_t first = item % chunks * each, left = rows - first, panel = item / chunks;
            if (left > 0)
                pass->kernels->multiply(product, panel, in, form, first, left < each ? left : each, out, stride, bf16,
                                        (const char *)product->packed + bytes * (size_t)(panel + 1));
        }
    }
    worker->products++;
}
