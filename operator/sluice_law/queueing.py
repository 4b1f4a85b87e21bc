"""How long a request waits for its first token: for a place, then for the prompts that are served before its own.

Places are a birth–death chain with departures μ(1)…μ(n), constant beyond (as in WVA's queueing model; a batch that
is not full steps faster, which an n-server queue of constant service misses by far). Its weights are

    w(k)/w(k−1) = λ/μ(k) = a/k + b        a = λ·o·base, b = λ·o·(seconds per sequence and step)

Arrivals that are not Poisson come with their index of dispersion I. Both the share that waits and its mean wait follow
the spread z = (I + c_s²)/2: the first by Hayward's approximation (n places of z-fold traffic behave like n/z places;
Fredericks, "Congestion in blocking systems", BSTJ 1980), the second by Allen–Cunneen (in Whitt, "Approximations for
the GI/G/m queue", 1993).

Prompts share what decoding leaves of each second and are served one after another: an M/G/1 queue
(Pollaczek–Khinchine), with the same z-fold traffic.
"""

import math
from functools import lru_cache
from typing import Final

from sluice_law.steptime import StepTimeModel
from sluice_law.work import Work, concurrency_at, prefill_seconds, throughput, token_seconds

SERVICE_VARIANCE: Final = 1.0  # squared coefficient of variation of output lengths: 0.8–1.2 on the Azure 2023 trace
PROMPT_VARIANCE: Final = 2.0  # the same of prompt work: 1.3 (Azure 2023) to 2.5 (ServeGen), heavier than exponential
LEAST_SPREAD: Final = 0.1  # z: even a perfect split of a steady stream leaves the lengths of answers to chance
LEAST_SHARE: Final = 0.05  # of a second that is left to prompts, however many sequences decode
SUMMED: Final = 256  # places up to which the chain is summed one by one
PIECES: Final = 128  # beyond, in so many pieces: each is at most half as wide as the number in service scatters
_NO_LOAD: Final = 1e-9  # of what is served flat out
_NEGLIGIBLE: Final = 1e7  # so many times what waits: the share that waits is nobody
_MOST_EXPONENT: Final = 600.0  # a load so far beyond what is served that nearly all are turned away
_LOG_NEGLIGIBLE: Final = 23.0  # the same beside any queue that a utilisation of 99.9 % makes


def spread_of(burstiness: float) -> float:
    """z: how much further counts scatter than those of Poisson arrivals with exponential work (z = 1), or less far."""
    return max((burstiness + SERVICE_VARIANCE) / 2.0, LEAST_SPREAD)


@lru_cache(maxsize=256)  # searches for different bounds ask for the same loads: half of all sums were summed before
def waiting_share(model: StepTimeModel, work: Work, places: int, rate: float, spread: float = 1.0) -> float:
    """Probability that an arrival finds all places taken; 1 at or beyond μ(places)."""
    top = throughput(model, work, places)
    if rate >= top:
        return 1.0
    if rate < _NO_LOAD * top:
        return 0.0
    full = 1.0 / (1.0 - rate / top)
    return full / (_free(model, work, places, rate, spread, full) + full)


@lru_cache(maxsize=256)
def _free(model: StepTimeModel, work: Work, places: int, rate: float, spread: float, full: float) -> float:
    """Weight of all states with a free place, beside that of the fullest of them: `full` is what waits beside it."""
    output, grouped = max(work.output, 1.0), max(LEAST_SPREAD, spread)
    groups = max(1, int(places / grouped + 1e-9))
    fixed = rate * output * model.base / grouped
    each = rate * output * (token_seconds(model, work, 1.0) - model.base)
    return _below(groups, fixed, each, full) if groups <= SUMMED else _below_many(groups, fixed, each, full)


def _below(places: int, fixed: float, each: float, full: float) -> float:
    """Σ w(k) for k < places, over w(places): from the top down, until nothing that waits is left beside it."""
    weight, total = 1.0, 0.0
    for place in range(places, 0, -1):
        weight /= fixed / place + each
        total += weight
        if total > _NEGLIGIBLE * full:
            return total
    return total


def _below_many(places: int, fixed: float, each: float, full: float) -> float:
    """The same in `PIECES`, each by its middle. w(k) = b^k·Γ(k+1+a/b) / (Γ(k+1)·Γ(1+a/b)), the negative binomial's
    weights; a^k/k!, the Poisson's, where a batch costs nothing per sequence."""
    poisson = each * places < 1e-9 * fixed
    ratio, log_each = (0.0, math.log(fixed)) if poisson else (fixed / each, math.log(each))
    lgamma, exp = math.lgamma, math.exp

    def log_weight(k: float) -> float:
        return k * log_each - lgamma(k + 1.0) + (0.0 if poisson else lgamma(k + 1.0 + ratio))

    top, width, total, last = log_weight(places), places / PIECES, 0.0, 1.0
    for index in range(PIECES):
        above = log_weight(max(places - 0.5 - (index + 0.5) * width, 0.0)) - top
        if above > _LOG_NEGLIGIBLE:
            return _NEGLIGIBLE * full
        weight = exp(above)
        total += weight
        if weight < last and weight < 1e-6 * total:
            break
        last = weight
    return width * total


def prompt_share(model: StepTimeModel, work: Work, decoding: float, itl: float, batch_tokens: int) -> float:
    """Share of a second that prompts may take beside `decoding` sequences: a scheduler that cuts prompts fills each
    step up to the inter-token target, never beyond the step's tokens."""
    beside = model.base + (model.sequence + model.kv_token * work.context) * decoding
    most = model.prefill_token * batch_tokens
    chunk = most if decoding < 1.0 else min(max(itl - beside, 0.0), most)
    return max(chunk / (beside + chunk), LEAST_SHARE) if chunk > 0 else LEAST_SHARE


def own_seconds(model: StepTimeModel, work: Work, decoding: float, share: float) -> float:
    """What a request takes by itself beside `decoding` sequences: a running step ends (half of one on the mean), its
    prompt is computed at the share of time that prompts get, and its first token takes a step."""
    return 1.5 * token_seconds(model, work, decoding) + prefill_seconds(model, work) / share


def late_share(
    model: StepTimeModel, work: Work, places: int, rate: float, seconds: float, spread: float, share: float
) -> float:
    """Probability that a request waits longer than `seconds` before its own prompt is begun: both waits have
    exponential tails, and the probabilities of two rare lates add up."""
    if seconds <= 0:
        return 1.0
    top = throughput(model, work, places)
    if rate >= top:
        return 1.0
    for_place = waiting_share(model, work, places, rate, spread) * math.exp(-seconds * (top - rate) / spread)
    each = prefill_seconds(model, work) / share
    busy = rate * each
    if busy >= 1.0:
        return 1.0
    mean = each * (2.0 * spread - SERVICE_VARIANCE + PROMPT_VARIANCE) / 2.0 / (1.0 - busy)
    for_prompts = busy * math.exp(-seconds / mean) if mean > 0 else 0.0
    return min(1.0, for_place + for_prompts)


def lost_share(
    model: StepTimeModel, work: Work, places: int, rate: float, seconds: float, spread: float, share: float
) -> float:
    """Probability that a request would wait longer than `seconds` where all who would are turned away at the door, so
    that nobody waits for them: both queues hold at any load, and beyond what is served only the surplus is lost."""
    if seconds <= 0:
        return 1.0
    top = throughput(model, work, places)
    if rate < _NO_LOAD * top:
        return 0.0
    grouped = max(LEAST_SPREAD, spread)
    waits = _truncated(top / grouped, rate / top, seconds)
    for_place = waits[1] / (_free(model, work, places, rate, spread, sum(waits)) + sum(waits))
    each = prefill_seconds(model, work) / share
    busy, stretched = rate * each, (2.0 * spread - SERVICE_VARIANCE + PROMPT_VARIANCE) / 2.0 * each
    if stretched <= 0.0:
        return for_place
    within, beyond = _truncated(1.0 / stretched, busy, seconds)
    for_prompts = busy * beyond / (1.0 + busy * (within + beyond))
    return min(1.0, for_place + for_prompts)


def _truncated(drain: float, load: float, seconds: float) -> tuple[float, float]:
    """How long the wait of a queue with a deadline is inside it and beyond, as weights beside that of just being busy: with
    e^(−g·v), g = drain·(1 − load), as the density of the wait v up to the deadline, and e^(−drain·v) from there on, where
    nobody joins (M/M/n+D: Barrer, "Queuing with impatient customers and ordered service", Oper. Res. 1957)."""
    decay = drain * (1.0 - load)
    beyond = math.exp(min(-decay * seconds, _MOST_EXPONENT))
    within = drain * seconds if abs(decay * seconds) < 1e-9 else drain * (1.0 - beyond) / decay
    return within, beyond


def decoding_at(model: StepTimeModel, work: Work, places: int, rate: float) -> float:
    """Sequences that decode on the mean: none where a request is one token long."""
    return concurrency_at(model, work, rate, places) if work.output > 1.0 else 0.0
