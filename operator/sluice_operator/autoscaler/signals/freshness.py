"""Freshness of samples: a sample that is stale, not a number, negative or absurd counts as missing."""

import math
from collections.abc import Collection, Iterable
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
    """Whether every number is valid."""
    if not _are_valid(_numbers(sample)) or sample.kv_occupancy > 1.01:  # a share, with room for rounding
        return False
    shadow, model = sample.shadow, sample.step_model
    if shadow is not None:
        counts = (shadow.requests, shadow.unreachable, *shadow.late)
        if len(shadow.late) != len(LOADS) or not _are_valid(counts):
            return False
    if model is not None:
        terms = (model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token)
        if not _are_valid((model.steps, *terms)):
            return False
    return is_valid_histogram(sample.ttft) and is_valid_histogram(sample.itl)


def _are_valid(values: Collection[float]) -> bool:
    """Whether no value is negative or absurd. The sum detects a NaN, which comparisons of the other values would not."""
    return min(values) >= 0.0 and max(values) < LAW.largest_value and math.isfinite(sum(values))
