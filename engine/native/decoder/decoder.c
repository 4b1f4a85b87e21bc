/* A forward pass of a Llama-type decoder in one call, from the embedded tokens to the logits.
 *
 * Each layer has eight phases (norm, product, rotation and cache, attention, product, norm, two products), and two
 * more where products have rows of another form: they quantise or widen the inputs of the second and the last product (single
 * tokens have theirs quantised where they attend). The threads share the items of a phase and synchronize between phases. Only the
 * phase counters and the list of attention tiles are allocated.
 *
 * With few rows a step takes as long as reading the weights. Each thread then normalises and prepares all rows for
 * itself (inputs.c), reads its own part of each weight (products.c), and rotates single tokens where they attend (attend.c).
 */
#include <stdlib.h>

#include "../attention/attention.h"
#include "phases.h"

#define PHASES_OF_LAYER 10
#define PRODUCTS_OF_LAYER 4
#define OTHER_PHASES 4
#define BUFFERS 8
#define ALONE_BYTES (8 << 20) /* at most as many weights are read before the last thread joins */
#define BETWEEN_BYTES (16 << 20) /* of the weights are fetched between two steps; less than a level 3 cache */

/* Bytes of the five buffers of a step, of the two buffers of gathered rows and of the prepared rows. */
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
    const int prepares = decoder->head.int8 || (work->bf16 && sluice_widens(-1));
    const enum form form = decoder->head.int8 ? QUANTISED : WIDENED;
    sizes[BUFFERS - 1] = prepares ? (own > most ? own : most) * bytes_of_row(form, widest, (int)work->bf16) : 0;
}

int64_t sluice_scratch(const struct decoder *decoder, const struct work *work, int64_t count) {
    int64_t sizes[BUFFERS], sum = 64;
    lay_out(decoder, work, count, sizes);
    for (int i = 0; i < BUFFERS; i++)
        sum += sizes[i];
    return sum;
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
        const void *in = decoder_norm(pass, &worker, next++, stream, layer->norm_before, rows, &layer->query_key_value);
        decoder_multiply(pass, &worker, next++, &layer->query_key_value, &layer->output, in, rows, pass->mixed,
                 qkv_width(pass->work));
        wait_for_others(&worker);
        if (!pass->singles) {
            decoder_rotate(pass, next++, layer);
            wait_for_others(&worker);
        }
        const int quantised = !last && decoder_quantises_in_tiles(pass, layer, rows);
        decoder_attend(pass, &worker, next++, layer, quantised);
        wait_for_others(&worker);
        if (last) {
            decoder_gather(pass, next++);
            wait_for_others(&worker);
            stream = pass->hidden_wanted, attended = pass->attended_wanted, rows = pass->step->count;
        }
        in = quantised ? pass->prepared : decoder_prepare(pass, &worker, next++, attended, rows, &layer->output);
        decoder_multiply(pass, &worker, next++, &layer->output, &layer->gate_up, in, rows, stream, hidden);
        wait_for_others(&worker);
        in = decoder_norm(pass, &worker, next++, stream, layer->norm_after, rows, &layer->gate_up);
        decoder_multiply(pass, &worker, next++, &layer->gate_up, &layer->down, in, rows, pass->gated, decoder->inner);
        wait_for_others(&worker);
        in = decoder_prepare(pass, &worker, next++, pass->gated, rows, &layer->down);
        decoder_multiply(pass, &worker, next++, &layer->down, after, in, rows, stream, hidden);
        if (thread == 0) /* the other threads read the result after the barrier */
            decoder_keep_deadline(pass, index + 1);
        worker.without_last = index + 1 < alone; /* it waits at this barrier */
        wait_for_others(&worker);
        if (!last)
            rows = pass->step->kept;
    }
    const void *in = decoder_norm(pass, &worker, next++, stream, decoder->norm_last, rows, &decoder->head);
    decoder_multiply(pass, &worker, next++, &decoder->head, &decoder->layer[0].query_key_value, in, rows, pass->step->logits,
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
                               &embedded,    &pass.hidden_wanted, &pass.attended_wanted, &pass.prepared};
    char *at = (char *)(((uintptr_t)step->scratch + 63) / 64 * 64);
    for (int i = 0; i < BUFFERS; at += sizes[i], i++)
        *buffers[i] = at;
    if (step->ids != NULL) {
        embed(&decoder->head, step->ids, work->tokens, (int)work->bf16, embedded, pass.kernels);
        pass.hidden = embedded;
    }
    step->kept = work->tokens, step->spent = 0;
    pass.begun = seconds_now();
    pool_run((int)work->threads, run, &pass);
    free(memory);
    return 0;
}
