/* A forward pass of a Llama-type decoder in one call, from the embedded tokens to the logits.
 *
 * Each layer has eight phases (norm, product, rotation and cache, attention, product, norm, two products), and two
 * more with int8 weights, which quantise the inputs of the second and the last product (single tokens have theirs quantised
 * where they attend). The threads share the items of a phase and synchronize between phases. Only the phase counters and the list of attention tiles are allocated.
 *
 * With few rows a step takes as long as reading the weights, so reading must not stop. Each thread then normalises and
 * quantises all rows for itself, which costs less than a barrier; it has its own part of each weight, which it reads in
 * order and prefetches while it waits for the others; and single tokens are rotated where they attend.
 *
 * A step may have a deadline. Its last tokens belong to a prefill that is not urgent. Between two layers, the step
 * drops as many of them as it needs to meet the deadline, because memory bandwidth varies during a step and is not
 * predictable.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attention/attention.h"
#include "pool.h"

#define PHASES_OF_LAYER 10
#define PRODUCTS_OF_LAYER 4
#define OTHER_PHASES 4
#define BUFFERS 8
#define ROW_CHUNK 16 /* rows per item, where a row is little work */
#define QUANTISED_CHUNK 2 /* the same where they are quantised too */
#define PRODUCT_ROWS 96 /* rows per item of a product with a panel */
#define OWN_ROWS 16 /* at most as many rows does each thread normalise for itself */
#define OWN_QUANTISED 4 /* the same where they are quantised too */
#define AHEAD_BYTES (192 << 10) /* of a weight are prefetched before its product; less than a level 2 cache */
#define ALONE_BYTES (8 << 20) /* at most as many weights are read before the last thread joins */
#define BETWEEN_BYTES (16 << 20) /* of the weights are fetched between two steps; less than a level 3 cache */
#define LINE 64

struct decoder_layer {
    struct product query_key_value, output, gate_up, down;
    const void *norm_before, *norm_after;   /* [hidden]: before attention, and after it */
    const void *norm_query, *norm_key;      /* [dim], or NULL */
    void *key_cache, *value_cache;          /* [blocks, block_size, kv_heads, entry_bytes] */
    int64_t group;                          /* index of the layer group, which shares block tables and slots */
    int64_t window;                         /* 0: none */
    float scale, softcap;                   /* softcap 0: none */
};

struct decoder {
    int64_t layers, hidden, inner, vocab;   /* inner: width of the feed-forward layers */
    const struct decoder_layer *layer;
    const void *norm_last;                  /* [hidden] */
    struct product head;
    float epsilon;
};

struct step { /* inputs and outputs of one call, besides `struct work` */
    const int64_t *ids;                     /* [tokens], embedded by the head's weight; NULL: `hidden` is given */
    void *hidden;                           /* [tokens, hidden]: embedded tokens; overwritten */
    const int64_t *positions;               /* [tokens] */
    const int64_t *wanted;                  /* [count] flat indices whose logits are computed */
    int64_t count;
    const void *cosine, *sine;              /* [positions, dim / 2] */
    void *scratch;                          /* sluice_scratch bytes */
    float *logits;                          /* [count, vocab] */
    double seconds;                         /* time limit of the call; 0: none */
    double share;                           /* share of the time for the tokens from `firm` on; above 0 */
    int64_t firm;                           /* tokens that are never dropped; a quarter of the others is kept too */
    int64_t kept;                           /* out: tokens that were computed in all layers */
    int64_t spent;                          /* out: tokens computed in each layer, summed over the layers */
    int64_t *best;                          /* out: [count] index of each row's largest logit, the lowest of a tie */
    float *highest;                         /* out: [count] that logit; NaN if a logit of the row is NaN */
};

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
    char *quantised;                                  /* [tokens, quantised_bytes]: the input of an int8 product */
    double begun;                                     /* seconds, monotonic */
    double effort;                                    /* layers computed so far; one with all tokens counts as 1 */
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Called by one thread after `done` layers. Keeps as many of the droppable tokens as fit into the remaining time at
 * the pace of the finished layers, and always a quarter of them, so that a prefill progresses. */
static void keep_deadline(struct pass *pass, int64_t done) {
    struct step *step = pass->step;
    const int64_t all = pass->work->tokens - step->firm, layers = pass->decoder->layers;
    step->spent += step->kept;
    if (step->seconds <= 0 || done == layers)
        return;
    pass->effort += 1 - step->share + step->share * (double)(step->kept - step->firm) / (double)all;
    const double spent = now() - pass->begun;
    const double room = (step->seconds / spent - 1) * pass->effort / (double)(layers - done); /* per layer */
    const double fits = (room - (1 - step->share)) / step->share * (double)all;
    const double least = (double)((all + 3) / 4), kept = fits > least ? fits : least;
    if (kept < (double)(step->kept - step->firm))
        step->kept = step->firm + (int64_t)kept;
}

static int64_t qkv_width(const struct work *work) {
    return (work->heads + 2 * work->kv_heads) * work->dim;
}

static int64_t most_own_rows(const struct decoder *decoder) { return decoder->head.int8 ? OWN_QUANTISED : OWN_ROWS; }

/* Rows that each thread normalises for itself: all of them, or none if they are many. */
static int64_t own_rows(const struct decoder *decoder, int64_t rows) {
    return rows <= most_own_rows(decoder) ? rows : 0;
}

/* Bytes of the five buffers of a step, of the two buffers of gathered rows and of the quantised rows. */
static void lay_out(const struct decoder *decoder, const struct work *work, int64_t count, int64_t sizes[BUFFERS]) {
    const int64_t item = work->bf16 ? 2 : 4, attended = work->heads * work->dim;
    const int64_t widths[BUFFERS - 1] = {decoder->hidden, qkv_width(work), attended, decoder->inner,
                                         decoder->hidden, decoder->hidden, attended};
    const int64_t most = work->tokens > count ? work->tokens : count; /* `wanted` may repeat a row */
    int64_t widest = 0;
    for (int i = 0; i < BUFFERS - 1; i++) {
        sizes[i] = ((i < 5 ? most : count) * widths[i] * item + 63) / 64 * 64;
        widest = widths[i] > widest ? widths[i] : widest;
    }
    /* Rows become fewer where a step drops tokens and in the last layer: each thread may then have all that are left. */
    const int64_t left = most < most_own_rows(decoder) ? most : most_own_rows(decoder), own = left * work->threads;
    if (own > most)
        sizes[0] = (own * decoder->hidden * item + 63) / 64 * 64;
    sizes[BUFFERS - 1] = decoder->head.int8 ? (own > most ? own : most) * quantised_bytes(widest) : 0;
}

int64_t sluice_scratch(const struct decoder *decoder, const struct work *work, int64_t count) {
    int64_t sizes[BUFFERS], sum = 64;
    lay_out(decoder, work, count, sizes);
    for (int i = 0; i < BUFFERS; i++)
        sum += sizes[i];
    return sum;
}

/* Waits for the other threads. Meanwhile it fetches what this thread reads next. */
static void wait_for_others(struct worker *worker) {
    if (worker->without_last)
        pool_barrier_without_last(&worker->reading);
    else
        pool_barrier(&worker->reading);
}

static size_t row_bytes(const struct pass *pass, int64_t size) { return (size_t)size * (pass->work->bf16 ? 2 : 4); }

static void quantise_row(const struct pass *pass, const char *in, int64_t size, int64_t row) {
    pass->kernels->quantise(in, size, (int)pass->work->bf16, pass->quantised + row * quantised_bytes(size));
}

static void norm_row(const struct pass *pass, const char *in, const void *weight, int64_t row, int64_t to, int int8) {
    const int64_t size = pass->decoder->hidden;
    const size_t bytes = row_bytes(pass, size);
    char *out = pass->normed + (size_t)to * bytes;
    pass->kernels->norm(in + (size_t)row * bytes, weight, pass->decoder->epsilon, size, out, (int)pass->work->bf16);
    if (int8)
        quantise_row(pass, out, size, to);
}

/* Normalises rows for a product, and quantises them if its weight is int8. Returns the input of the product. */
static const void *norm_rows(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                             const void *weight, int64_t rows, const struct product *product) {
    const int64_t own = own_rows(pass->decoder, rows), first = own * worker->thread, size = pass->decoder->hidden;
    const int int8 = (int)product->int8;
    for (int64_t row = 0; row < own; row++)
        norm_row(pass, in, weight, row, first + row, int8);
    if (own == 0) {
        const int64_t each = int8 ? QUANTISED_CHUNK : ROW_CHUNK;
        for (int64_t chunk; pool_take(next, (rows + each - 1) / each, &chunk);)
            for (int64_t row = chunk * each; row < rows && row < (chunk + 1) * each; row++)
                norm_row(pass, in, weight, row, row, int8);
        wait_for_others(worker);
    }
    return int8 ? pass->quantised + first * quantised_bytes(size) : pass->normed + (size_t)first * row_bytes(pass, size);
}

/* Quantises rows for a product if its weight is int8. Returns the input of the product. */
static const void *quantise_rows(const struct pass *pass, struct worker *worker, _Atomic int64_t *next, const char *in,
                                 int64_t rows, const struct product *product) {
    const int64_t own = own_rows(pass->decoder, rows), first = own * worker->thread, size = product->inner;
    const size_t bytes = row_bytes(pass, size);
    if (!product->int8)
        return in;
    for (int64_t row = 0; row < own; row++)
        quantise_row(pass, in + (size_t)row * bytes, size, first + row);
    if (own == 0) {
        for (int64_t row; pool_take(next, rows, &row);)
            quantise_row(pass, in + (size_t)row * bytes, size, row);
        wait_for_others(worker);
    }
    return pass->quantised + first * quantised_bytes(size);
}

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
    struct share *shares = pass->shares + worker->products % 3 * threads;
    following += later * (size_t)part_of(pass, after, thread, threads);
    for (int turn = 0; turn < threads; turn++) {
        const int owner = (thread + turn) % threads;
        const int64_t first = part_of(pass, product, owner, threads), count = part_of(pass, product, owner + 1, threads) - first;
        for (int64_t item; pool_take(&shares[owner].taken, count, &item);) {
            const char *next = packed + bytes * (size_t)(first + item + 1);
            pass->kernels->multiply(product, first + item, in, 0, rows, out, stride, bf16,
                                    turn == 0 && item + 1 < count ? next : following);
        }
    }
    const size_t own = later * (size_t)(part_of(pass, after, thread + 1, threads) - part_of(pass, after, thread, threads));
    worker->reading = (struct reading){following + (later < bytes ? later : bytes),
                                       following + (own < AHEAD_BYTES ? own : AHEAD_BYTES)};
}

/* Multiplies rows, and waits for the other threads. `after`: the product that follows. */
static void multiply(const struct pass *pass, struct worker *worker, _Atomic int64_t *next,
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
        for (int64_t item; pool_take(next, chunks * pass->kernels->panels(product), &item);) {
            const int64_t first = item % chunks * each, left = rows - first, panel = item / chunks;
            if (left > 0)
                pass->kernels->multiply(product, panel, in, first, left < each ? left : each, out, stride, bf16,
                                        (const char *)product->packed + bytes * (size_t)(panel + 1));
        }
    }
    worker->products++;
}

/* Rotates the queries and keys of KV heads [first, end) of one token in place and writes keys and values to the cache. */
static void rotate_and_keep(const struct pass *pass, const struct decoder_layer *layer, int64_t row, int64_t first,
                            int64_t end) {
    const struct work *work = &pass->work[layer->group];
    const int bf16 = (int)work->bf16;
    const int64_t group = work->heads / work->kv_heads;
    const size_t item = bf16 ? 2 : 4, head_bytes = item * (size_t)work->dim;
    char *heads = pass->mixed + item * (size_t)(row * qkv_width(work));
    const size_t angle = item * (size_t)(pass->step->positions[row] * (work->dim / 2));
    for (int64_t head = first * group; head < end * (group + 1) - first; head++) {
        const int is_query = head < end * group;
        const void *norm = is_query ? layer->norm_query : layer->norm_key;
        char *at = heads + (size_t)(is_query ? head : work->heads + first + head - end * group) * head_bytes;
        if (norm != NULL)
            pass->kernels->norm(at, norm, pass->decoder->epsilon, work->dim, at, bf16);
        pass->kernels->rotate(at, (const char *)pass->step->cosine + angle, (const char *)pass->step->sine + angle,
                              work->dim, bf16);
    }
    const size_t token = (size_t)work->kv_heads * head_bytes;
    const int64_t slot = work->slots[row];
    const char *keys = heads + (size_t)(work->heads + first) * head_bytes;
    attention_keep(work, pass->kernels, keys, head_bytes, slot, first, end, 1, layer->key_cache);
    attention_keep(work, pass->kernels, keys + token, head_bytes, slot, first, end, 0, layer->value_cache);
}

/* Whether a tile of attention quantises its token's row for the output product: it must have all heads of the row. */
static int quantises_in_tiles(const struct pass *pass, const struct decoder_layer *layer, int64_t rows) {
    return layer->output.int8 && pass->singles && pass->tile_count == pass->work->tokens && own_rows(pass->decoder, rows) == 0;
}

static void attend(const struct pass *pass, const struct worker *worker, _Atomic int64_t *next,
                   const struct decoder_layer *layer, int quantises) {
    const struct work *work = &pass->work[layer->group];
    const struct layer view = {.query = pass->mixed, .query_token = qkv_width(work), .query_head = work->dim,
                               .key_cache = layer->key_cache, .value_cache = layer->value_cache, .out = pass->attended,
                               .window = layer->window, .scale = layer->scale, .softcap = layer->softcap};
    for (int64_t index; pool_take(next, pass->tile_count, &index);) {
        struct tile tile = pass->tiles[index];
        const int64_t left = pass->step->kept - tile.token;
        if (left <= 0)
            continue;
        if (left < tile.count)
            tile.count = (int)left;
        if (pass->singles) { /* no other tile reads what this one rotates */
            rotate_and_keep(pass, layer, tile.token, tile.kv_head, tile.kv_head + tile.heads);
            if (index + worker->threads < pass->tile_count) /* where threads take turns, its own next one */
                tile.after = &pass->tiles[index + worker->threads];
        }
        pass->kernels->attend(work, &view, &tile);
        if (quantises) {
            const int64_t size = layer->output.inner;
            quantise_row(pass, pass->attended + (size_t)tile.token * row_bytes(pass, size), size, tile.token);
        }
    }
}

static int is_finite(const char *row, int64_t size, int bf16) {
    for (int64_t i = 0; i < size; i++) { /* an exponent of all ones: infinite or NaN */
        uint32_t bits = 0;
        memcpy(&bits, row + i * (bf16 ? 2 : 4), bf16 ? 2 : 4);
        if (bf16 ? (bits & 0x7F80u) == 0x7F80u : (bits & 0x7F800000u) == 0x7F800000u)
            return 0;
    }
    return 1;
}

/* Returns the row that stands for `wanted`. For a dropped token it is the last kept row, unless the dropped row is
 * already not finite: then that row is used, so that its request fails in either case. */
static int64_t row_of(const struct pass *pass, int64_t wanted) {
    const int64_t kept = pass->step->kept, hidden = pass->decoder->hidden;
    if (wanted < kept)
        return wanted;
    const char *dropped = pass->hidden + (size_t)(wanted * hidden) * (pass->work->bf16 ? 2 : 4);
    return is_finite(dropped, hidden, (int)pass->work->bf16) ? kept - 1 : wanted;
}

/* Gathers the wanted rows of the residual and of attention's output: only they need the last feed-forward layer. */
static void gather(const struct pass *pass, _Atomic int64_t *next) {
    const size_t item = pass->work->bf16 ? 2 : 4, hidden = item * (size_t)pass->decoder->hidden;
    const size_t attended = item * (size_t)(pass->work->heads * pass->work->dim);
    for (int64_t row; pool_take(next, pass->step->count, &row);) {
        const size_t from = (size_t)row_of(pass, pass->step->wanted[row]);
        memcpy(pass->hidden_wanted + (size_t)row * hidden, pass->hidden + from * hidden, hidden);
        memcpy(pass->attended_wanted + (size_t)row * attended, pass->attended + from * attended, attended);
    }
}

/* The first weights of the next step, which a thread fetches to the caches while the host prepares that step. The calling
 * thread is the host's. Weights follow each other in memory; where they do not, a prefetch of other memory does no harm. */
static struct reading between_steps(const struct decoder *decoder, int thread, int threads) {
    if (thread == 0)
        return (struct reading){NULL, NULL};
    const char *first = decoder->layer[0].query_key_value.packed;
    const size_t each = BETWEEN_BYTES / (size_t)(threads - 1);
    return (struct reading){first + each * (size_t)(thread - 1), first + each * (size_t)thread};
}

/* The number of first layers in which the last thread sits out. When a step begins, the host's other thread settles the step
 * before and plans the next one. It would take the processor of a thread that all others then wait for. */
static int64_t layers_without_last(const struct pass *pass, int threads) {
    const struct decoder_layer *layer = pass->decoder->layer;
    const struct product *products[PRODUCTS_OF_LAYER] = {&layer->query_key_value, &layer->output, &layer->gate_up,
                                                         &layer->down};
    int64_t bytes = 0;
    if (threads == 1 || pass->work->tokens > OWN_ROWS)
        return 0;
    for (int i = 0; i < PRODUCTS_OF_LAYER; i++)
        bytes += pass->kernels->panels(products[i]) *
                 (int64_t)pass->kernels->panel_bytes(products[i], (int)pass->work->bf16);
    const int64_t fit = ALONE_BYTES / bytes, most = pass->decoder->layers / 2;
    return fit < most ? fit : most;
}

static struct reading run(void *context, int thread, int threads) {
    struct pass *pass = context;
    const struct decoder *decoder = pass->decoder;
    const int64_t hidden = decoder->hidden;
    const int64_t alone = layers_without_last(pass, threads);
    const int sits_out = alone > 0 && thread == threads - 1;
    if (sits_out)
        pool_sit_out();
    _Atomic int64_t *next = pass->next;
    int64_t rows = pass->step->kept;
    char *stream = pass->hidden, *attended = pass->attended;
    struct worker worker = {.thread = thread, .threads = threads};
    for (int64_t index = sits_out ? alone : 0; index < decoder->layers; index++) {
        const struct decoder_layer *layer = &decoder->layer[index];
        next = pass->next + PHASES_OF_LAYER * index;
        worker.products = PRODUCTS_OF_LAYER * index;
        worker.without_last = index < alone;
        const int last = index == decoder->layers - 1;
        const struct product *after = last ? &decoder->head : &layer[1].query_key_value;
        const void *in = norm_rows(pass, &worker, next++, stream, layer->norm_before, rows, &layer->query_key_value);
        multiply(pass, &worker, next++, &layer->query_key_value, &layer->output, in, rows, pass->mixed,
                 qkv_width(pass->work));
        wait_for_others(&worker);
        if (!pass->singles) {
            for (int64_t row; pool_take(next, pass->step->kept, &row);)
                rotate_and_keep(pass, layer, row, 0, pass->work->kv_heads);
            next++;
            wait_for_others(&worker);
        }
        const int quantised = !last && quantises_in_tiles(pass, layer, rows);
        attend(pass, &worker, next++, layer, quantised);
        wait_for_others(&worker);
        if (last) {
            gather(pass, next++);
            wait_for_others(&worker);
            stream = pass->hidden_wanted, attended = pass->attended_wanted, rows = pass->step->count;
        }
        in = quantised ? pass->quantised : quantise_rows(pass, &worker, next++, attended, rows, &layer->output);
        multiply(pass, &worker, next++, &layer->output, &layer->gate_up, in, rows, stream, hidden);
        wait_for_others(&worker);
        in = norm_rows(pass, &worker, next++, stream, layer->norm_after, rows, &layer->gate_up);
        multiply(pass, &worker, next++, &layer->gate_up, &layer->down, in, rows, pass->gated, decoder->inner);
        wait_for_others(&worker);
        in = quantise_rows(pass, &worker, next++, pass->gated, rows, &layer->down);
        multiply(pass, &worker, next++, &layer->down, after, in, rows, stream, hidden);
        if (thread == 0) /* the other threads read the result after the barrier */
            keep_deadline(pass, index + 1);
        worker.without_last = index + 1 < alone; /* it waits at this barrier */
        wait_for_others(&worker);
        if (!last)
            rows = pass->step->kept;
    }
    const void *in = norm_rows(pass, &worker, next++, stream, decoder->norm_last, rows, &decoder->head);
    multiply(pass, &worker, next++, &decoder->head, &decoder->layer[0].query_key_value, in, rows, pass->step->logits,
             decoder->vocab);
    wait_for_others(&worker);
    for (int64_t row; pool_take(next, rows, &row);)
        pass->step->highest[row] = pass->kernels->largest(pass->step->logits + row * decoder->vocab, decoder->vocab,
                                                          &pass->step->best[row]);
    if (pass->kernels->leave != NULL)
        pass->kernels->leave();
    return between_steps(decoder, thread, threads);
}

/* Unpacks rows of the head's packed weight to out [count, inner]: the embeddings, which share it. */
static void embed(const struct product *head, const int64_t *ids, int64_t count, int bf16, char *out,
                  const struct kernels *kernels) {
    for (int64_t row = 0; row < count; row++)
        kernels->unpack(head, ids[row], bf16, out + (size_t)(row * head->inner) * (bf16 ? 2 : 4));
}

/* Returns 0 if this code supports a decoder of these sizes at this level, else 1. */
int sluice_can_decode(const struct decoder *decoder, const struct work *work, int level) {
    if (!attention_fits(work) || decoder->hidden % 16 || decoder->inner % 16)
        return 1;
    if (decoder->head.int8 && (decoder->hidden > MAX_INNER || decoder->inner > MAX_INNER ||
                               work->heads * work->dim > MAX_INNER))
        return 1;
    return work->bf16 && !kernels_of(level)->pairs;
}

/* Computes one step. `work` has one entry per layer group. `level` is the maximum instruction set level and must be
 * the level for which the weights were packed. Returns 0 on success, 1 for unsupported sizes, 2 if out of memory.
 * Nothing is written unless it returns 0. */
int sluice_decode(const struct decoder *decoder, const struct work *work, struct step *step, int level) {
    if (sluice_can_decode(decoder, work, level))
        return 1;
    const int64_t phases = PHASES_OF_LAYER * decoder->layers + OTHER_PHASES, tiles = attention_count(work);
    const size_t shares = sizeof(struct share) * 3 * (size_t)(work->threads > 1 ? work->threads : 1);
    const size_t counters = sizeof(_Atomic int64_t) * (size_t)phases;
    char *memory = calloc(1, LINE + shares + counters + sizeof(struct tile) * (size_t)tiles);
    if (memory == NULL)
        return 2;
    char *aligned = (char *)(((uintptr_t)memory + LINE - 1) / LINE * LINE);
    struct tile *cut = (struct tile *)(aligned + shares + counters);
    attention_cut(work, cut);
    struct pass pass = {.decoder = decoder, .work = work, .step = step, .kernels = kernels_of(level), .tiles = cut,
                        .tile_count = tiles, .hidden = step->hidden, .shares = (struct share *)aligned,
                        .next = (_Atomic int64_t *)(aligned + shares), .singles = work->rows == work->tokens};
    int64_t sizes[BUFFERS];
    lay_out(decoder, work, step->count, sizes);
    char *embedded;
    char **buffers[BUFFERS] = {&pass.normed, &pass.mixed,         &pass.attended,        &pass.gated,
                               &embedded,    &pass.hidden_wanted, &pass.attended_wanted, &pass.quantised};
    char *at = (char *)(((uintptr_t)step->scratch + 63) / 64 * 64);
    for (int i = 0; i < BUFFERS; at += sizes[i], i++)
        *buffers[i] = at;
    if (step->ids != NULL) {
        embed(&decoder->head, step->ids, work->tokens, (int)work->bf16, embedded, pass.kernels);
        pass.hidden = embedded;
    }
    step->kept = work->tokens, step->spent = 0;
    pass.begun = now();
    pool_run((int)work->threads, run, &pass);
    free(memory);
    return 0;
}

/* Returns the number of outputs that a weight's panels hold, including padding. */
int64_t sluice_packed_rows(const struct product *product, int level) {
    const struct kernels *kernels = kernels_of(level);
    return kernels->panels(product) * kernels->width;
}

/* Returns the bytes of a packed weight. Behind the last outputs of an int8 panel lie bytes that an outlier's product reads. */
int64_t sluice_packed_bytes(const struct product *product, int bf16, int level) {
    const struct kernels *kernels = kernels_of(level);
    return kernels->panels(product) * (int64_t)kernels->panel_bytes(product, bf16) + (product->int8 ? LINE : 0);
}

/* Packs weight [outer, inner] and bias [outer] or NULL into `packed`, of sluice_packed_bytes, and `packed_bias`, with
 * sluice_packed_rows values. The weight is quantised if the product is int8. */
void sluice_pack(const struct product *product, const void *weight, const void *bias, int bf16, void *packed,
                 float *packed_bias, int level) {
    kernels_of(level)->pack(product, weight, bias, bf16, packed, packed_bias);
}

/* Quantises rows [rows, inner] as the decoder does for an int8 product, and multiplies them: `quantised` has room for
 * sluice_quantised_bytes each. For tests and measurements of single products. */
int64_t sluice_quantised_bytes(int64_t inner) { return quantised_bytes(inner); }

void sluice_multiply(const struct product *product, const void *in, int64_t rows, void *out, int64_t stride, int bf16,
                     void *quantised, int level) {
    const struct kernels *kernels = kernels_of(level);
    const size_t bytes = (bf16 ? 2 : 4) * (size_t)product->inner;
    for (int64_t row = 0; product->int8 && row < rows; row++)
        kernels->quantise((const char *)in + (size_t)row * bytes, product->inner, bf16,
                          (char *)quantised + row * quantised_bytes(product->inner));
    for (int64_t panel = 0; panel < kernels->panels(product); panel++)
        kernels->multiply(product, panel, product->int8 ? quantised : in, 0, rows, out, stride, bf16, product->packed);
    if (kernels->leave != NULL)
        kernels->leave();
}

/* Field offsets of each struct that Python mirrors (native.py, decoder.py). */
static const struct layout layouts[] = {
#define STRUCT(type) {#type, 0, (int64_t)sizeof(struct type)}
#define FIELD(type, field) {#type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field)}
    STRUCT(work), FIELD(work, rows), FIELD(work, tokens), FIELD(work, heads), FIELD(work, kv_heads), FIELD(work, dim),
    FIELD(work, block_size), FIELD(work, bf16), FIELD(work, threads), FIELD(work, row_first), FIELD(work, row_start),
    FIELD(work, table_first), FIELD(work, tables), FIELD(work, slots), FIELD(work, tile_rows),
    FIELD(work, int8_cache),
    STRUCT(layer), FIELD(layer, query), FIELD(layer, query_token), FIELD(layer, query_head), FIELD(layer, key),
    FIELD(layer, value), FIELD(layer, key_token), FIELD(layer, key_head), FIELD(layer, value_token),
    FIELD(layer, value_head), FIELD(layer, key_cache), FIELD(layer, value_cache), FIELD(layer, out),
    FIELD(layer, window), FIELD(layer, scale), FIELD(layer, softcap),
    STRUCT(product), FIELD(product, packed), FIELD(product, bias), FIELD(product, inner), FIELD(product, outer),
    FIELD(product, kind), FIELD(product, int8), FIELD(product, tile_rows),
    STRUCT(decoder_layer), FIELD(decoder_layer, query_key_value), FIELD(decoder_layer, output),
    FIELD(decoder_layer, gate_up), FIELD(decoder_layer, down), FIELD(decoder_layer, norm_before),
    FIELD(decoder_layer, norm_after), FIELD(decoder_layer, norm_query), FIELD(decoder_layer, norm_key),
    FIELD(decoder_layer, key_cache), FIELD(decoder_layer, value_cache), FIELD(decoder_layer, group),
    FIELD(decoder_layer, window), FIELD(decoder_layer, scale), FIELD(decoder_layer, softcap),
    STRUCT(decoder), FIELD(decoder, layers), FIELD(decoder, hidden), FIELD(decoder, inner), FIELD(decoder, vocab),
    FIELD(decoder, layer), FIELD(decoder, norm_last), FIELD(decoder, head), FIELD(decoder, epsilon),
    STRUCT(step), FIELD(step, ids), FIELD(step, hidden), FIELD(step, positions), FIELD(step, wanted),
    FIELD(step, count), FIELD(step, cosine), FIELD(step, sine), FIELD(step, scratch), FIELD(step, logits), FIELD(step, seconds),
    FIELD(step, share), FIELD(step, firm), FIELD(step, kept), FIELD(step, spent), FIELD(step, best),
    FIELD(step, highest),
};

/* Returns the entry at this index, or NULL after the last one. */
const struct layout *sluice_layout(int64_t index) {
    return index < (int64_t)(sizeof layouts / sizeof layouts[0]) ? &layouts[index] : NULL;
}
