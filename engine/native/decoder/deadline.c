/* A step may have a deadline. Its last tokens belong to a prefill that is not urgent. Between two layers, the step drops as
 * many of them as it needs to meet the deadline, because memory bandwidth varies during a step and is not predictable. */
#include <string.h>

#include "phases.h"

void decoder_keep_deadline(struct pass *pass, int64_t done) {
    struct step *step = pass->step;
    const int64_t all = pass->work->tokens - step->firm, layers = pass->decoder->layers;
    step->spent += step->kept;
    if (step->seconds <= 0 || done == layers)
        return;
    pass->effort += 1 - step->share + step->share * (double)(step->kept - step->firm) / (double)all;
    const double spent = seconds_now() - pass->begun;
    const double room = (step->seconds / spent - 1) * pass->effort / (double)(layers - done); /* per layer */
    const double fits = (room - (1 - step->share)) / step->share * (double)all;
    const double least = (double)((all + 3) / 4), kept = fits > least ? fits : least;
    if (kept < (double)(step->kept - step->firm))
        step->kept = step->firm + (int64_t)kept;
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

void decoder_gather(const struct pass *pass, _Atomic int64_t *next) {
    const size_t item = pass->work->bf16 ? 2 : 4, hidden = item * (size_t)pass->decoder->hidden;
    const size_t attended = item * (size_t)(pass->work->heads * pass->work->dim);
    for (int64_t row; pool_take(next, pass->step->count, &row);) {
        const size_t from = (size_t)row_of(pass, pass->step->wanted[row]);
        memcpy(pass->hidden_wanted + (size_t)row * hidden, pass->hidden + from * hidden, hidden);
        memcpy(pass->attended_wanted + (size_t)row * attended, pass->attended + from * attended, attended);
    }
}
