"""Parses an engine's /metrics into one `EngineSample`. Pure: the cluster, `sluice up` and the simulator share it.

A sample is all or nothing: one NaN, negative or implausible number invalidates the whole scrape, because the autoscaler
would use a partly wrong sample as it stands. A counter without a series yet is 0; gauges that an engine always
publishes must be present.
"""

import functools
import itertools
import math
import re
from collections import defaultdict
from typing import Final

from sluice import contract
from sluice_operator.autoscaler.values import EngineSample, Histogram, ShadowTotals
from sluice_operator.engines.text_format import BadExposition, Labels, read_samples
from sluice_perfmodel.shadow_queues import LOAD_NAMES
from sluice_perfmodel.step_time import StepTimeModel

__all__ = ["BadExposition", "parse"]

_WANTED: Final = tuple(
    sorted(
        {
            contract.REQUESTS_RUNNING,
            contract.REQUESTS_WAITING,
            contract.TOKENS_IN_FLIGHT,
            contract.KV_OCCUPANCY_RATIO,
            contract.KV_BLOCKS,
            contract.ADMISSION_LIMIT,
            contract.TIME_TO_FIRST_TOKEN,
            contract.INTER_TOKEN_LATENCY,
            contract.REQUESTS_ARRIVED,
            contract.REQUESTS_OFFERED_AGAIN,
            contract.REQUESTS,
            contract.SLO_REQUESTS,
            contract.KV_BLOCK_SECONDS,
            contract.REJECTIONS,
            contract.PROMPT_TOKENS_TOTAL,
            contract.CACHED_PROMPT_TOKENS,
            contract.GENERATED_TOKENS,
            contract.STEP_MODEL_SECONDS,
            contract.STEP_MODEL_ERROR,
            contract.STEP_MODEL_STEPS,
            contract.CACHE_CONFIG_INFO,
            contract.MODEL_INFO,
            contract.LOAD_PHASE_SECONDS,
            contract.SHADOW_REQUESTS,
            contract.SHADOW_UNREACHABLE,
            contract.SHADOW_LATE,
        }
    )
)
_REVISION: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
_ABSURD: Final = 1e18  # a value of this size or more is implausible in every unit


class _Series:
    """The series of one scrape that are used, by name and labels."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = defaultdict(dict)

    def add(self, name: str, labels: Labels, value: float) -> None:
        self._values[name][labels] = value

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Sum of the series of a name, per value of one label."""
        found: dict[str, float] = defaultdict(float)
        for labels, value in self._values.get(name, {}).items():
            found[dict(labels).get(label, "")] += value
        return found

    def label_values(self, name: str, label: str) -> list[str]:
        return [dict(labels).get(label, "") for labels in self._values.get(name, {})]

    def counter(self, name: str) -> float:
        """Total over all labels; 0 without a series."""
        return sum(self._values.get(name, {}).values())

    def gauge(self, name: str) -> float:
        if name not in self._values:
            raise BadExposition(f"{name} is missing")
        return sum(self._values[name].values())


def parse(text: str) -> EngineSample:
    """Parse one scrape in O(len(text)). Raises BadExposition; TooLarge if the text exceeds a bound of `text_format`."""
    series = _read(text)
    limits = series.by_label(contract.ADMISSION_LIMIT, "kind")
    outcomes = series.by_label(contract.REQUESTS, "outcome")
    slo = series.by_label(contract.SLO_REQUESTS, "result")
    occupancy = series.gauge(contract.KV_OCCUPANCY_RATIO)
    if occupancy > 1.000001:
        raise BadExposition(f"{contract.KV_OCCUPANCY_RATIO} is {occupancy}: more than 1")
    for kind in ("concurrency", "concurrency_min", "concurrency_max"):
        if kind not in limits:
            raise BadExposition(f"{contract.ADMISSION_LIMIT}{{kind={kind}}} is missing")
    return EngineSample(
        running=series.gauge(contract.REQUESTS_RUNNING),
        waiting=series.gauge(contract.REQUESTS_WAITING),
        tokens_in_flight=series.gauge(contract.TOKENS_IN_FLIGHT),
        kv_occupancy=min(occupancy, 1.0),
        kv_blocks=series.gauge(contract.KV_BLOCKS),
        block_size=_block_size(series),
        concurrency=limits["concurrency"],
        concurrency_min=limits["concurrency_min"],
        concurrency_max=limits["concurrency_max"],
        queue_limit=limits.get("queue", 0.0),
        arrived_total=series.counter(contract.REQUESTS_ARRIVED),
        finished_total=outcomes.get("stop", 0.0) + outcomes.get("length", 0.0),
        rejected_total=series.counter(contract.REJECTIONS),
        slo_met_total=slo.get("met", 0.0),
        slo_missed_total=sum(value for result, value in slo.items() if result != "met"),
        prompt_tokens_total=series.counter(contract.PROMPT_TOKENS_TOTAL),
        cached_prompt_tokens_total=series.counter(contract.CACHED_PROMPT_TOKENS),
        generated_tokens_total=series.counter(contract.GENERATED_TOKENS),
        kv_block_seconds_total=series.counter(contract.KV_BLOCK_SECONDS),
        ttft=_histogram(series, contract.TIME_TO_FIRST_TOKEN),
        itl=_histogram(series, contract.INTER_TOKEN_LATENCY),
        step_model=_step_model(series),
        load_seconds=tuple(sorted(series.by_label(contract.LOAD_PHASE_SECONDS, "phase").items())),
        failed_total=outcomes.get("error", 0.0),
        offered_again_total=series.counter(contract.REQUESTS_OFFERED_AGAIN),
        shadow=_shadow(series),
        revision=_revision(series),
    )


def _read(text: str) -> _Series:
    """Read only the series that are used; an engine publishes others for dashboards."""
    series = _Series()
    for name, labels, value in read_samples(text, _WANTED):
        if not 0 <= value < _ABSURD:  # NaN compares false as well
            raise BadExposition(f"{name} is {value}: outside the valid range")
        series.add(name, labels, value)
    return series


def _block_size(series: _Series) -> float:
    sizes = series.label_values(contract.CACHE_CONFIG_INFO, "block_size")
    if not sizes and series.gauge(contract.KV_BLOCKS) == 0:
        return 0.0  # the model is loading: no KV pool exists yet
    if len(sizes) != 1 or not sizes[0].isdecimal() or int(sizes[0]) == 0:
        raise BadExposition(f"{contract.CACHE_CONFIG_INFO} has no single block_size above 0")
    return float(sizes[0])


def _revision(series: _Series) -> str:
    """The revision of the served model; "" where it has none or its characters are no revision's."""
    found = [value for value in series.label_values(contract.MODEL_INFO, "revision") if _REVISION.fullmatch(value)]
    return found[0] if len(found) == 1 else ""


def _histogram(series: _Series, name: str) -> Histogram:
    buckets = series.by_label(f"{name}_bucket", "le")
    if not buckets:
        return Histogram()
    try:
        ordered = sorted((float(bound), count) for bound, count in buckets.items())
    except ValueError as error:
        raise BadExposition(f"{name} has a bucket bound that is no number: {error}") from error
    bounds, counts = zip(*ordered, strict=True)
    if not math.isinf(bounds[-1]) or any(a > b for a, b in itertools.pairwise(counts)):
        raise BadExposition(f"{name} is no histogram: its buckets must grow and end with +Inf")
    return Histogram(bounds=_shared(bounds), counts=counts, sum=series.counter(f"{name}_sum"))


@functools.lru_cache(maxsize=64)
def _shared(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """One object for the equal bounds of all engines: samples of thousands of pods are kept."""
    return bounds


def _shadow(series: _Series) -> ShadowTotals | None:
    """The counters of the shadow queues; None where the engine does not publish each load."""
    late = series.by_label(contract.SHADOW_LATE, "load")
    if any(name not in late for name in LOAD_NAMES):
        return None
    return ShadowTotals(
        requests=series.counter(contract.SHADOW_REQUESTS),
        unreachable=series.counter(contract.SHADOW_UNREACHABLE),
        late=tuple(late[name] for name in LOAD_NAMES),
    )


def _step_model(series: _Series) -> StepTimeModel | None:
    """The step-time model that the engine fitted; None before its first step."""
    terms = series.by_label(contract.STEP_MODEL_SECONDS, "term")
    steps = series.counter(contract.STEP_MODEL_STEPS)
    if steps < 1 or any(term not in terms for term in contract.STEP_MODEL_TERMS):
        return None
    return StepTimeModel(
        base=terms["base"],
        prefill_token=terms["prefill_token"],
        prefill_context=terms["prefill_context"],
        sequence=terms["sequence"],
        kv_token=terms["kv_token"],
        error_ratio=series.counter(contract.STEP_MODEL_ERROR),
        steps=int(steps),
    )
