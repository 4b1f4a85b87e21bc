"""The fast admission loop: one engine's concurrency limit inside its bounds.

The engine (and the simulator) runs it every second on its own measurements. Prompts take the share f of each second, so
n sequences that decode together take

    S(n) = (base + sequence·n + kv_token·n·L) / (1 − f)        f = prefill_token·P' + prefill_context·C'

seconds per token (P', C': prompt tokens and Σ chunk × context per second). A scheduler with chunked prefill can keep
every step within the target exactly as long as S(n) is within it, so the largest such n is the limit.

While prompts wait, chunks fill each step up to the target, so f measures the available time and not the time that
prompts need. A limit computed from that f would empty steps that have room for a prompt. Prefill then bounds itself,
because a request cannot start without a chunk, and S(n) is taken with f = 0. With w seconds of prefill per generated
token of the requests that ended, n sequences are replaced in time as long as base + n·(sequence + kv_token·L + w) is
within the target. The larger of the two n counts, unless KV memory allows fewer (`_kv_limit`).

The limit falls at once, which protects the running requests. It rises slowly, so that a burst of short prompts does not
admit too many requests at once. A bound that is raised is followed at once: the operator's bounds include a slow start.
"""

import math
from typing import Final, NamedTuple

from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel

_SETTINGS: Final = PERFMODEL.limit


class EngineLoad(NamedTuple):
    """The engine's measurements of the last seconds. Tokens and seconds."""

    running: int
    waiting: int
    mean_context: float  # cached tokens per running sequence; 0 while nothing runs
    prefill_rate: float  # uncached prompt tokens computed per second
    prefill_context_rate: float  # Σ chunk × context per second
    observed_itl: float | None  # p95 of the inter-token times of the last seconds; None without any
    kv_tokens_total: int  # size of the pool
    kv_tokens_held: int  # held by running requests
    growth_per_sequence: float  # tokens that a running sequence is still expected to add
    mean_itl: float | None = None  # mean of the same inter-token times: compared with the model's S(n)
    mean_sequences: float | None = None  # rows decoding beside those tokens, mean over tokens; None: `running`
    written_per_sequence: float | None = None  # tokens that a running sequence has written; None: equal to the growth
    prompt_per_output: float | None = None  # uncached prompt tokens per output token, of requests that ended


class LimitState(NamedTuple):
    """State of the fast loop between two periods; all fields but `limit` and `unbounded` are smoothed."""

    limit: int
    correction: float = 1.0  # observed / predicted mean inter-token time: the model's error
    margin: float = 1.0  # room kept between the mean and the target; grows as latency nears it
    prefill_share: float = 0.0  # f
    context: float = 0.0  # L; kept while no request runs, for the first request after a pause
    unbounded: float | None = None  # limit without the bounds; inf where only the bounds limit; None: `limit`
    prefill_per_token: float | None = None  # w; None until a request has ended
    slowness: float = 1.0  # the correction over minutes: the model's error independent of the mix


class LimitTargets(NamedTuple):
    """Bounds and targets in force: the operator's (PATCH /limits), or those of the engine's start."""

    minimum: int
    maximum: int
    itl: float  # seconds
    kv_watermark: float  # share of the pool that running requests may fill


def next_limit(
    state: LimitState, model: StepTimeModel | None, load: EngineLoad, targets: LimitTargets
) -> tuple[LimitState, str]:
    """The next limit and its binding: "itl", "kv", "bounds" or "cold".

    "cold" means that the model has seen too few steps; the limit is then the maximum.
    """
    maximum = max(targets.minimum, targets.maximum)
    if model is None or model.steps < _SETTINGS.least_model_steps:
        return LimitState(limit=maximum, unbounded=math.inf), "cold"
    learned = _smoothed(state, model, load, targets.itl)
    share = 0.0 if load.waiting else learned.prefill_share
    by_itl = max(
        _itl_limit(learned, model, targets.itl, maximum, share), _prefill_limit(learned, model, targets.itl, maximum)
    )
    by_kv = _kv_limit(load, targets.kv_watermark, maximum)
    unbounded = float(min(by_itl, by_kv))
    before = max(state.limit if state.unbounded is None else state.unbounded, targets.minimum)
    if unbounded > before:
        unbounded = min(unbounded, before + max(1, int(before * _SETTINGS.rise)))
    binding = "bounds" if unbounded >= maximum else "itl" if by_itl <= by_kv else "kv"
    limit = int(max(targets.minimum, min(unbounded, maximum)))
    return learned._replace(limit=limit, unbounded=math.inf if unbounded >= maximum else unbounded), binding


def slowed(model: StepTimeModel, state: LimitState) -> StepTimeModel:
    """The model to publish: scaled up by `slowness` when steps have been slower than predicted for minutes.

    The operator computes n* and the queue limits from it, so it must include a slowness that lasts. It is never scaled
    down: a bound that is too low delays requests, one that is too high misses the inter-token target.
    """
    return model if state.slowness <= 1.0 + _SETTINGS.slowness_noise else model.scaled(state.slowness)


def predicted_itl(model: StepTimeModel, sequences: float, context: float, prefill_share: float) -> float:
    """S(n): mean seconds between two tokens of one sequence while prompts take `prefill_share` of the time."""
    decode = model.base + (model.sequence + model.kv_token * context) * sequences
    return decode / (1.0 - min(max(prefill_share, 0.0), _SETTINGS.most_prefill_share))


def _smoothed(state: LimitState, model: StepTimeModel, load: EngineLoad, target: float) -> LimitState:
    """Fold one period's measurements into the smoothed values. A value without a measurement decays or stays."""
    now = 0.0
    if load.observed_itl is not None or load.mean_itl is not None:
        # Prefill delays tokens only where requests decode: a classifier with one output token has no ITL target.
        now = model.prefill_token * load.prefill_rate + model.prefill_context * load.prefill_context_rate
    now = min(max(now, 0.0), _SETTINGS.most_prefill_share)
    share = _smooth(state.prefill_share, now)
    context = state.context
    if load.running > 0:
        context = load.mean_context if state.context == 0.0 else _smooth(state.context, load.mean_context)
    correction = 1.0
    # The prediction uses the rows that those tokens saw, which may differ from the rows of this instant.
    rows = load.running if load.mean_sequences is None else load.mean_sequences
    if load.mean_itl is not None and rows > 0:
        predicted = predicted_itl(model, rows, load.mean_context, now)
        low, high = _SETTINGS.correction_bounds
        correction = min(max(load.mean_itl / predicted, low), high) if predicted > 0 else high
    return LimitState(
        limit=state.limit,
        correction=_smooth(state.correction, correction),
        margin=_smooth(state.margin, _margin(load, target)),
        prefill_share=share,
        context=context,
        unbounded=state.unbounded,
        prefill_per_token=_prefill_per_token(state.prefill_per_token, model, load),
        slowness=state.slowness + _SETTINGS.slowness_smoothing * (correction - state.slowness),
    )


def _itl_limit(state: LimitState, model: StepTimeModel, target: float, maximum: int, share: float) -> int:
    """The largest n with S(n) · correction · margin ≤ target, while prompts take `share`; S is linear in n."""
    budget = target * (1.0 - share) / (state.correction * state.margin)
    per_sequence = model.sequence + model.kv_token * state.context
    if budget <= model.base:
        return 0
    if per_sequence * maximum <= budget - model.base:
        return maximum
    return math.floor((budget - model.base) / per_sequence)


def _prefill_per_token(old: float | None, model: StepTimeModel, load: EngineLoad) -> float | None:
    """w: prefill seconds per generated token, over the requests that ended."""
    if load.prompt_per_output is None:
        return old
    context = load.prefill_context_rate / load.prefill_rate if load.prefill_rate > 0 else 0.0
    new = load.prompt_per_output * (model.prefill_token + model.prefill_context * context)
    return new if old is None else _smooth(old, new)


def _prefill_limit(state: LimitState, model: StepTimeModel, target: float, maximum: int) -> int:
    """The largest n that leaves time for the prompts of the requests that replace the n.

    There is no margin: beyond this n prompts slow down and tokens do not, since chunks end where the target does.
    """
    if state.prefill_per_token is None:
        return 0
    budget = target / state.correction - model.base
    per_sequence = model.sequence + model.kv_token * state.context + state.prefill_per_token
    if budget <= 0:
        return 0
    return maximum if per_sequence * maximum <= budget else math.floor(budget / per_sequence)


def _margin(load: EngineLoad, target: float) -> float:
    """Room kept between the mean inter-token time and the target.

    It is 1 while the mean is at most half of the target, `margin` when the mean is at target/`margin`, and proportional to
    the p95 where the p95 is beyond the target. The limit thus falls as latency nears the target, before a miss. A burst
    into an idle engine still gets the model's own n, never more.
    """
    p95 = (load.observed_itl or 0.0) / target
    if p95 > 1.0:
        return min(_SETTINGS.margin * p95, _SETTINGS.most_margin)
    mean = (load.mean_itl or load.observed_itl or 0.0) / target
    nearness = (mean - _SETTINGS.no_margin_below) / (1.0 / _SETTINGS.margin - _SETTINGS.no_margin_below)
    return 1.0 + (_SETTINGS.margin - 1.0) * min(max(nearness, 0.0), 1.0)


def _kv_limit(load: EngineLoad, watermark: float, maximum: int) -> int:
    """The largest n whose KV blocks stay under the watermark, now and as they grow. Shared prefixes count once.

    Sequences do not end together: while one writes its last token others have just started. Where the remaining length
    is that of a renewal process in equilibrium (as much written as still to write: Cox, "Renewal Theory", 1962), their
    sum stays constant. It scatters by √n times the deviation of one age, which is its mean over √3 where ages are
    uniform (central limit theorem). Tokens to write beyond that equilibrium belong to sequences that started together;
    half of the difference is still to come on average. With h held, w written and g growth per sequence

        n·(h + max(0, g − w)/2) + z·√n·max(w, g)/√3 ≤ watermark · pool

    The result is at least the n for which all sequences fit at their full length, n·(h + g).
    """
    if load.running <= 0:
        return maximum
    held, growth = load.kv_tokens_held / load.running, max(0.0, load.growth_per_sequence)
    written = growth if load.written_per_sequence is None else load.written_per_sequence
    room = watermark * load.kv_tokens_total
    mean = held + max(0.0, growth - written) / 2.0
    if mean <= 0:
        return maximum
    scatter = _SETTINGS.peak_sigmas * max(written, growth) / math.sqrt(3.0)
    root = (math.sqrt(scatter * scatter + 4.0 * mean * room) - scatter) / (2.0 * mean)
    return min(maximum, max(math.floor(root * root), math.floor(room / (held + growth))))


def _smooth(old: float, new: float) -> float:
    """One step of exponential smoothing."""
    return old + _SETTINGS.smoothing * (new - old)
