"""Freshness of samples: a sample that is stale, not a number, negative or absurd counts as missing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.histograms import is_valid_histogram
from sluice_operator.autoscaler.values import EngineSample, Observed, PodView
from sluice_perfmodel.shadow_queues import LOADS

COUNTERS: Final = (
    "arrived_total",
    "finished_total",
    "rejected_total",
    "failed_total",
    "offered_again_total",
    "slo_met_total",
    "slo_missed_total",
    "prompt_tokens_total",
    "cached_prompt_tokens_total",
    "generated_tokens_total",
    "kv_block_seconds_total",
)
_GAUGES: Final = (
    "running",
    "waiting",
    "tokens_in_flight",
    "kv_occupancy",
    "kv_blocks",
    "block_size",
    "concurrency",
    "queue_limit",
)
_numbers: Final = attrgetter(*_GAUGES, *COUNTERS)


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    """The pods by the state of their metrics."""

    ready: tuple[PodView, ...] = ()
    measured: tuple[tuple[PodView, EngineSample], ...] = ()  # ready, with a valid and fresh sample
    starting: tuple[PodView, ...] = ()  # scheduling, pulling or loading: they will serve

    @property
    def unmeasured(self) -> int:
        """Number of ready pods without a fresh sample."""
        return len(self.ready) - len(self.measured)

    @property
    def running(self) -> float:
        """Running requests of the measured pods."""
        return math.fsum(sample.running for _, sample in self.measured)

    @property
    def waiting(self) -> float:
        """Waiting requests of the measured pods."""
        return math.fsum(sample.waiting for _, sample in self.measured)

    @property
    def in_flight(self) -> bool:
        """Whether any measured pod has a running or waiting request."""
        return any(sample.running or sample.waiting for _, sample in self.measured)


def fleet_metrics(observed: Observed, scrape_gap: float | None, now: float) -> FleetMetrics:
    """Classify the pods. Stale is older than three scrapes, by the local monotonic clock."""
    gap = LAW.usual_scrape_seconds if scrape_gap is None else scrape_gap
    oldest = max(LAW.usual_scrape_seconds, LAW.stale_after_scrapes * gap)
    ready = tuple(pod for pod in observed.pods if pod.phase == "ready")
    return FleetMetrics(
        ready=ready,
        measured=_fresh_samples(ready, oldest, now),
        starting=tuple(
            pod
            for pod in observed.pods
            if pod.phase in ("scheduling", "pulling", "loading") and now - pod.since < LAW.starting_most_seconds
        ),
    )


def _fresh_samples(pods: Iterable[PodView], oldest: float, now: float) -> tuple[tuple[PodView, EngineSample], ...]:
    return tuple(
        (pod, pod.sample)
        for pod in pods
        if pod.sample is not None
        and pod.sample_at is not None
        and 0.0 <= now - pod.sample_at <= oldest
        and is_valid(pod.sample)
    )


def is_valid(sample: EngineSample) -> bool:
    """Whether every number is valid. NaN compares false with everything."""
    values = _numbers(sample)
    # The sum detects a NaN, which comparisons of the other values would not.
    if not (min(values) >= 0.0 and max(values) < LAW.largest_value and math.isfinite(sum(values))):
        return False
    if sample.kv_occupancy > 1.01:  # a share, with room for rounding
        return False
    shadow = sample.shadow
    if shadow is not None:
        if len(shadow.late) != len(LOADS):
            return False
        counts = (shadow.requests, shadow.unreachable, *shadow.late)
        if not (min(counts) >= 0.0 and max(counts) < LAW.largest_value and math.isfinite(sum(counts))):
            return False
    model = sample.step_model
    if model is not None:
        terms = (model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token)
        if not (model.steps >= 0 and all(0.0 <= term < LAW.largest_value for term in terms)):
            return False
    return is_valid_histogram(sample.ttft) and is_valid_histogram(sample.itl)
