"""The fast loop: where one engine's concurrency limit belongs, inside the bounds it was given.

Run every second by the engine (and by the simulator) on its own measurements. It follows the engine's own physics:
prompts take the share f of each second, so n sequences that decode together wait

    S(n) = (base + sequence·n + kv_token·n·L) / (1 − f)        f = prefill_token·P' + prefill_context·C'

seconds per token (P', C': prompt tokens and Σ chunk × context per second). A scheduler that cuts prompts into chunks
can keep every step within the target exactly as long as S(n) does, so the largest such n is the limit. While prompts
wait, its chunks fill each step up to the target, so that f is the time there was and not the time that they need: with
w seconds of prompt for each token that requests had generated when they ended, n sequences are renewed in time as long
as base + n·(sequence + kv_token·L + w) is within the target. A limit made of f would then empty steps that have room
for a prompt: nobody begins without a chunk, so prompts bound themselves, and S(n) is taken with f = 0. The larger of
the two n counts, unless memory ends sooner (`_kv_limit`). It falls at once and rises slowly: the one protects
who is already being served, the other keeps a burst of short prompts from opening the door to a herd. A bound that
opens is followed at once: who moved it has thought of the herd.
"""

import math
from typing import Final, NamedTuple

from sluice_law.steptime import StepTimeModel

TRUSTED_STEPS: Final = 50  # below, ten terms' worth of noise: five coefficients want at least ten steps each
MARGIN: Final = 1.15  # S(n) is a mean: near the target requests' own means scatter by about this much around it
MAX_MARGIN: Final = 1.5  # a p95 made by prompt chunks does not fall with n: it may cost a third of the target, not all
RELAXED: Final = 0.5  # mean / target up to which scatter cannot reach the target and no margin is kept
CORRECTION_BOUNDS: Final = (0.5, 3.0)  # a model further off than this is not corrected but wrong
SLOWNESS_SMOOTHING: Final = 1.0 / 120.0  # per tick: two minutes, in which the mix of prompts and answers averages out
SLOWNESS_NOISE: Final = 0.1  # Mooncake's long prompts make an exact model look up to 0.08 slow at one engine
SMOOTHING: Final = 0.3  # per tick: one odd second moves a smoothed value by a third, three in a row by two thirds
RISE: Final = 0.1  # share per tick: doubling takes seven ticks, about one request's length
PEAK_SIGMAS: Final = 2.0  # the pool holds what runs 97 times in 100; the scheduler's own forecast guards the rest
MAX_PREFILL_SHARE: Final = 0.95


class EngineLoad(NamedTuple):
    """What the engine measured over the last seconds. Tokens and seconds."""

    running: int
    waiting: int
    mean_context: float  # cached tokens per running sequence; 0 while nothing runs
    prefill_rate: float  # uncached prompt tokens computed per second
    prefill_context_rate: float  # Σ chunk × context per second
    observed_itl: float | None  # p95 of the inter-token times of the last seconds; None without any
    kv_tokens_total: int  # size of the pool
    kv_tokens_held: int  # held by running requests
    growth_per_sequence: float  # tokens that a running sequence is expected still to add
    mean_itl: float | None = None  # mean of the same inter-token times: what the model's S(n) is compared with
    mean_sequences: float | None = None  # rows decoding beside those tokens, on the mean over tokens; None: `running`
    written_per_sequence: float | None = None  # tokens that a running sequence has written; None: as many as it will
    prompt_per_output: float | None = None  # uncached prompt tokens per generated one, of requests that ended


class LimitState(NamedTuple):
    """What the fast loop carries from one tick to the next; all but `limit` and `own` are smoothed."""

    limit: int
    correction: float = 1.0  # observed / predicted mean inter-token time: what the model gets wrong
    margin: float = 1.0  # room kept between the mean and the target; grows as latency nears it
    prefill_share: float = 0.0  # f
    context: float = 0.0  # L; kept while nothing runs, so that the first request after a pause finds it
    own: float | None = None  # where latency and memory had it, inf where only the bound did; None: at `limit`
    renewal: float | None = None  # w; None until a request has ended
    slowness: float = 1.0  # the correction over minutes: what the model gets wrong whatever is being served


class LimitTargets(NamedTuple):
    """The operator's side of it: bounds and targets (PATCH /limits), or what the engine was started with."""

    minimum: int
    maximum: int
    itl: float  # seconds
    kv_watermark: float  # share of the pool that running requests may fill


def next_limit(
    state: LimitState, model: StepTimeModel | None, load: EngineLoad, targets: LimitTargets
) -> tuple[LimitState, str]:
    """The next limit and what binds it: "itl", "kv", "bounds" or "cold" (no trusted model yet: the maximum)."""
    maximum = max(targets.minimum, targets.maximum)
    if model is None or model.steps < TRUSTED_STEPS:
        return LimitState(limit=maximum, own=math.inf), "cold"
    learned = _learn(state, model, load, targets.itl)
    share = 0.0 if load.waiting else learned.prefill_share
    by_itl = max(
        _itl_limit(learned, model, targets.itl, maximum, share), _renewing(learned, model, targets.itl, maximum)
    )
    by_kv = _kv_limit(load, targets.kv_watermark, maximum)
    own = float(min(by_itl, by_kv))
    before = max(state.limit if state.own is None else state.own, targets.minimum)
    if own > before:
        own = min(own, before + max(1, int(before * RISE)))
    binding = "bounds" if own >= maximum else "itl" if by_itl <= by_kv else "kv"
    limit = int(max(targets.minimum, min(own, maximum)))
    return learned._replace(limit=limit, own=math.inf if own >= maximum else own), binding


def slowed(model: StepTimeModel, state: LimitState) -> StepTimeModel:
    """The model to tell others of: who counts replicas by it must not count on steps that have been slower for minutes.
    Never a faster one: a model that is too slow costs replicas and no promise, while engines that believe it go on
    keeping their steps short, so that fewer replicas would not do (T2 with steps a fifth faster: 95 % instead of 99.99)."""
    return model if state.slowness <= 1.0 + SLOWNESS_NOISE else model.scaled(state.slowness)


def predicted_itl(model: StepTimeModel, sequences: float, context: float, prefill_share: float) -> float:
    """S(n): mean seconds between two tokens of one sequence while prompts take `prefill_share` of the time."""
    decode = model.base + (model.sequence + model.kv_token * context) * sequences
    return decode / (1.0 - min(max(prefill_share, 0.0), MAX_PREFILL_SHARE))


def _learn(state: LimitState, model: StepTimeModel, load: EngineLoad, target: float) -> LimitState:
    """Fold one tick's measurements into the smoothed values. What was not measured decays or stays."""
    now = 0.0
    if load.observed_itl is not None or load.mean_itl is not None:
        # Prompts delay tokens only where tokens are due: a classifier with one output token has no such target.
        now = model.prefill_token * load.prefill_rate + model.prefill_context * load.prefill_context_rate
    now = min(max(now, 0.0), MAX_PREFILL_SHARE)
    share = _smooth(state.prefill_share, now)
    context = state.context
    if load.running > 0:
        context = load.mean_context if state.context == 0.0 else _smooth(state.context, load.mean_context)
    correction = 1.0
    # Like with like: the rows that those tokens saw, not those of this instant (two now, six three seconds ago).
    rows = load.running if load.mean_sequences is None else load.mean_sequences
    if load.mean_itl is not None and rows > 0:
        predicted = predicted_itl(model, rows, load.mean_context, now)
        low, high = CORRECTION_BOUNDS
        correction = min(max(load.mean_itl / predicted, low), high) if predicted > 0 else high
    return LimitState(
        limit=state.limit,
        correction=_smooth(state.correction, correction),
        margin=_smooth(state.margin, _margin(load, target)),
        prefill_share=share,
        context=context,
        own=state.own,
        renewal=_renewal(state.renewal, model, load),
        slowness=state.slowness + SLOWNESS_SMOOTHING * (correction - state.slowness),
    )


def _itl_limit(state: LimitState, model: StepTimeModel, target: float, maximum: int, share: float) -> int:
    """The largest n with S(n) · correction · margin ≤ target, prompts taking `share`; S is linear in n, so it is solved
    for n."""
    budget = target * (1.0 - share) / (state.correction * state.margin)
    per_sequence = model.sequence + model.kv_token * state.context
    if budget <= model.base:
        return 0
    if per_sequence * maximum <= budget - model.base:
        return maximum
    return math.floor((budget - model.base) / per_sequence)


def _renewal(old: float | None, model: StepTimeModel, load: EngineLoad) -> float | None:
    """w: seconds of prompt that come with each generated token, as requests that ended had them."""
    if load.prompt_per_output is None:
        return old
    context = load.prefill_context_rate / load.prefill_rate if load.prefill_rate > 0 else 0.0
    new = load.prompt_per_output * (model.prefill_token + model.prefill_context * context)
    return new if old is None else _smooth(old, new)


def _renewing(state: LimitState, model: StepTimeModel, target: float, maximum: int) -> int:
    """The largest n that leaves time for the prompts of those who take the places of the n. No margin: beyond it prompts
    slow down, not tokens, since chunks end where the target does."""
    if state.renewal is None:
        return 0
    budget = target / state.correction - model.base
    per_sequence = model.sequence + model.kv_token * state.context + state.renewal
    if budget <= 0:
        return 0
    return maximum if per_sequence * maximum <= budget else math.floor(budget / per_sequence)


def _margin(load: EngineLoad, target: float) -> float:
    """Room kept between the mean and the target: none while the mean is at half the target, MARGIN when it stands
    where MARGIN wants it, in proportion beyond the target for the p95. So the limit comes down as latency nears the
    target, before it is missed, and a burst into an idle engine still finds the model's own n, never more."""
    p95 = (load.observed_itl or 0.0) / target
    if p95 > 1.0:
        return min(MARGIN * p95, MAX_MARGIN)
    mean = (load.mean_itl or load.observed_itl or 0.0) / target
    nearness = (mean - RELAXED) / (1.0 / MARGIN - RELAXED)
    return 1.0 + (MARGIN - 1.0) * min(max(nearness, 0.0), 1.0)


def _kv_limit(load: EngineLoad, watermark: float, maximum: int) -> int:
    """The largest n whose blocks stay under the watermark, now and as they grow. Shared prefixes count once.

    Sequences do not end together: while one writes its last token others have begun anew. Where the time left is that
    of a renewal process in balance (as much written as still to write: Cox, "Renewal Theory", 1962) their sum stays as
    it is, and scatters by √n of one age's deviation, which is its mean over √3 where ages are uniform (central limit
    theorem). What is to be written beyond that balance belongs to sequences that began together: half of the
    difference is still to come on the mean. So with h held, w written and g growth per sequence

        n·(h + max(0, g − w)/2) + z·√n·max(w, g)/√3 ≤ watermark · pool

    and never less than what all would hold at their ends, n·(h + g).
    """
    if load.running <= 0:
        return maximum
    held, growth = load.kv_tokens_held / load.running, max(0.0, load.growth_per_sequence)
    written = growth if load.written_per_sequence is None else load.written_per_sequence
    room = watermark * load.kv_tokens_total
    mean = held + max(0.0, growth - written) / 2.0
    if mean <= 0:
        return maximum
    scatter = PEAK_SIGMAS * max(written, growth) / math.sqrt(3.0)
    root = (math.sqrt(scatter * scatter + 4.0 * mean * room) - scatter) / (2.0 * mean)
    return min(maximum, max(math.floor(root * root), math.floor(room / (held + growth))))


def _smooth(old: float, new: float) -> float:
    """One step of exponential smoothing."""
    return old + SMOOTHING * (new - old)
