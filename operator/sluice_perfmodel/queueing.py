"""Wait for the first token: the wait for a concurrency slot, then for the prompts that are served earlier.

Concurrency slots form a birth–death chain with departure rates μ(1)…μ(n), constant beyond (as in WVA's queueing model).
A partly filled batch steps faster, which an n-server queue of constant service does not represent. The weights are

    w(k)/w(k−1) = λ/μ(k) = a/k + b        a = λ·o·base, b = λ·o·(seconds per sequence and step)

Arrivals that are not Poisson have an index of dispersion I. The waiting share and the mean wait both follow the spread
z = (I + c_s²)/2. The first uses Hayward's approximation (n slots of z-fold traffic behave like n/z slots; Fredericks,
"Congestion in blocking systems", BSTJ 1980), the second Allen–Cunneen (in Whitt, "Approximations for the GI/G/m queue",
1993).

Prompts share the time that decoding leaves of each second and are served one after another: an M/G/1 queue
(Pollaczek–Khinchine) with the same z-fold traffic.
"""

import math
from functools import lru_cache
from typing import Final, NamedTuple

from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, concurrency_at, prefill_seconds, throughput, token_seconds

_SETTINGS: Final = PERFMODEL.capacity

SUMMED: Final = 256  # concurrency slots up to which the chain is summed one by one
PIECES: Final = 128  # pieces of a longer chain: each is at most half as wide as the deviation of the number in service
_NO_LOAD: Final = 1e-9  # share of the throughput that counts as no load
_NEGLIGIBLE: Final = 1e7  # ratio of free to full weight from which the waiting share counts as 0
_MOST_EXPONENT: Final = 600.0  # prevents overflow: at such a load nearly all requests are rejected
_LOG_NEGLIGIBLE: Final = 23.0  # ln(_NEGLIGIBLE · 1,000): the same ratio at a utilisation of 99.9 %


class SlotQueue(NamedTuple):
    """The queue before the concurrency slots of one replica."""

    model: StepTimeModel
    work: Work
    slots: int
    spread: float = 1.0  # z


def spread_of(burstiness: float) -> float:
    """z: spread of counts relative to Poisson arrivals with exponential service (z = 1), within its minimum."""
    return max((burstiness + _SETTINGS.service_variance) / 2.0, _SETTINGS.least_spread)


@lru_cache(maxsize=256)  # searches for different bounds repeat loads: half of all sums are cache hits
def waiting_probability(queue: SlotQueue, rate: float) -> float:
    """Probability that an arrival finds all concurrency slots taken; 1 at or beyond μ(slots)."""
    top = throughput(queue.model, queue.work, queue.slots)
    if rate >= top:
        return 1.0
    if rate < _NO_LOAD * top:
        return 0.0
    full = 1.0 / (1.0 - rate / top)
    return full / (_free(queue, rate, full) + full)


@lru_cache(maxsize=256)
def _free(queue: SlotQueue, rate: float, full: float) -> float:
    """Weight of all states with a free slot, relative to the state with exactly all slots taken.

    `full` is the weight of all states without a free slot, on the same scale. The sum stops where they are negligible.
    """
    model, work, slots, spread = queue
    output, grouped = max(work.output, 1.0), max(_SETTINGS.least_spread, spread)
    groups = max(1, int(slots / grouped + 1e-9))
    fixed = rate * output * model.base / grouped
    each = rate * output * (token_seconds(model, work, 1.0) - model.base)
    return _below(groups, fixed, each, full) if groups <= SUMMED else _below_many(groups, fixed, each, full)


def _below(slots: int, fixed: float, each: float, full: float) -> float:
    """Σ w(k) for k < slots, over w(slots): summed from the top until `full` is negligible beside the sum."""
    weight, total = 1.0, 0.0
    for slot in range(slots, 0, -1):
        weight /= fixed / slot + each
        total += weight
        if total > _NEGLIGIBLE * full:
            return total
    return total


def _below_many(slots: int, fixed: float, each: float, full: float) -> float:
    """The sum of `_below` in `PIECES` pieces, each by its midpoint.

    The weights are the negative binomial's, w(k) = b^k·Γ(k+1+a/b) / (Γ(k+1)·Γ(1+a/b)). Where a step costs nothing per
    sequence they are the Poisson's, a^k/k!.
    """
    poisson = each * slots < 1e-9 * fixed
    ratio, log_each = (0.0, math.log(fixed)) if poisson else (fixed / each, math.log(each))
    lgamma, exp = math.lgamma, math.exp

    def log_weight(k: float) -> float:
        return k * log_each - lgamma(k + 1.0) + (0.0 if poisson else lgamma(k + 1.0 + ratio))

    top, width, total, last = log_weight(slots), slots / PIECES, 0.0, 1.0
    for index in range(PIECES):
        above = log_weight(max(slots - 0.5 - (index + 0.5) * width, 0.0)) - top
        if above > _LOG_NEGLIGIBLE:
            return _NEGLIGIBLE * full
        weight = exp(above)
        total += weight
        if weight < last and weight < 1e-6 * total:
            break
        last = weight
    return width * total


def prefill_time_share(model: StepTimeModel, work: Work, decoding: float, itl: float, batch_tokens: int) -> float:
    """Share of a second that prompts may take beside `decoding` sequences.

    A scheduler with chunked prefill fills each step up to the inter-token target, and never beyond `batch_tokens`.
    """
    beside = model.base + (model.sequence + model.kv_token * work.context) * decoding
    most = model.prefill_token * batch_tokens
    chunk = most if decoding < 1.0 else min(max(itl - beside, 0.0), most)
    return max(chunk / (beside + chunk), _SETTINGS.least_prefill_share) if chunk > 0 else _SETTINGS.least_prefill_share


def unqueued_ttft(model: StepTimeModel, work: Work, decoding: float, share: float) -> float:
    """TTFT of a request without queueing, beside `decoding` sequences, in seconds.

    It is the rest of a running step (half a step on average), its prompt at the share of time that prompts get, and one
    step for its first token.
    """
    return 1.5 * token_seconds(model, work, decoding) + prefill_seconds(model, work) / share


def late_probability(queue: SlotQueue, rate: float, seconds: float, share: float) -> float:
    """Probability that a request waits longer than `seconds` before its own prefill begins.

    Both waits have exponential tails, and the probabilities of two rare events add up.
    """
    if seconds <= 0:
        return 1.0
    top = throughput(queue.model, queue.work, queue.slots)
    if rate >= top:
        return 1.0
    for_slot = waiting_probability(queue, rate) * math.exp(-seconds * (top - rate) / queue.spread)
    each = prefill_seconds(queue.model, queue.work) / share
    busy = rate * each
    if busy >= 1.0:
        return 1.0
    mean = each * _prompt_spread(queue.spread) / 2.0 / (1.0 - busy)
    for_prompts = busy * math.exp(-seconds / mean) if mean > 0 else 0.0
    return min(1.0, for_slot + for_prompts)


def rejection_probability(queue: SlotQueue, rate: float, seconds: float, share: float) -> float:
    """Probability that a request is rejected, where load shedding rejects all that would wait longer than `seconds`.

    No request then waits behind a rejected one. Both queues are stable at any load, and beyond the throughput only the
    surplus is lost.
    """
    if seconds <= 0:
        return 1.0
    top = throughput(queue.model, queue.work, queue.slots)
    if rate < _NO_LOAD * top:
        return 0.0
    grouped = max(_SETTINGS.least_spread, queue.spread)
    waits = _truncated(top / grouped, rate / top, seconds)
    for_slot = waits[1] / (_free(queue, rate, sum(waits)) + sum(waits))
    each = prefill_seconds(queue.model, queue.work) / share
    busy, stretched = rate * each, _prompt_spread(queue.spread) / 2.0 * each
    if stretched <= 0.0:
        return for_slot
    within, beyond = _truncated(1.0 / stretched, busy, seconds)
    for_prompts = busy * beyond / (1.0 + busy * (within + beyond))
    return min(1.0, for_slot + for_prompts)


def _prompt_spread(spread: float) -> float:
    """The index of dispersion of arrivals, from z, plus the squared coefficient of variation of prompt work."""
    return 2.0 * spread - _SETTINGS.service_variance + _SETTINGS.prompt_variance


def _truncated(drain: float, load: float, seconds: float) -> tuple[float, float]:
    """Weights of the wait inside and beyond the deadline of a queue, relative to the weight of being busy.

    The density of the wait v is e^(−g·v), g = drain·(1 − load), up to the deadline, and e^(−drain·v) beyond it, where
    no request joins (M/M/n+D: Barrer, "Queuing with impatient customers and ordered service", Oper. Res. 1957).
    """
    decay = drain * (1.0 - load)
    beyond = math.exp(min(-decay * seconds, _MOST_EXPONENT))
    within = drain * seconds if abs(decay * seconds) < 1e-9 else drain * (1.0 - beyond) / decay
    return within, beyond


def decoding_at(queue: SlotQueue, rate: float) -> float:
    """Mean number of decoding sequences: 0 where a request has one output token."""
    return concurrency_at(queue.model, queue.work, rate, queue.slots) if queue.work.output > 1.0 else 0.0
