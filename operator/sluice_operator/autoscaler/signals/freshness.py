"""Freshness of samples: a sample that is stale, not a number, negative or absurd counts as missing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from sluice_operator.autoscaler.signals.histograms import ABSURD, is_sane_histogram
from sluice_operator.autoscaler.values import EngineSample, Observed, PodView

STALE_SCRAPES: Final = 3.0
STALE_AT_LEAST: Final = 4.0  # seconds; one lost scrape at an interval of 1 s is no outage
COMING_AT_MOST: Final = 1800.0  # seconds in one phase: a pod whose volume never mounts must not block the others
USUAL_GAP: Final = 5.0  # seconds, until two scrapes of one pod were seen

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
_MAX_TERM: Final = 1e6  # seconds per unit of work: no engine needs eleven days for a token


@dataclass(frozen=True, slots=True)
class Fresh:
    """The pods by the state of their metrics."""

    ready: tuple[PodView, ...] = ()
    known: tuple[tuple[PodView, EngineSample], ...] = ()  # ready, with a valid and fresh sample
    heard: tuple[tuple[PodView, EngineSample], ...] = ()  # loading, with a fresh sample: they count rejected requests
    young: tuple[PodView, ...] = ()  # scheduling, pulling or loading: they will serve
    stuck: tuple[PodView, ...] = ()  # unschedulable or failed: they may never serve

    @property
    def coming(self) -> int:
        """Number of pods that are starting."""
        return len(self.young)

    @property
    def missing(self) -> int:
        """Number of ready pods without a fresh sample."""
        return len(self.ready) - len(self.known)


def fresh(observed: Observed, scrape_gap: float | None, now: float) -> Fresh:
    """Classify the pods. Stale is older than three scrapes, by the local monotonic clock."""
    oldest = max(STALE_AT_LEAST, STALE_SCRAPES * (USUAL_GAP if scrape_gap is None else scrape_gap))
    ready = tuple(pod for pod in observed.pods if pod.phase == "ready")
    return Fresh(
        ready=ready,
        known=_fresh_samples(ready, oldest, now),
        heard=_fresh_samples([pod for pod in observed.pods if pod.phase == "loading"], oldest, now),
        young=tuple(
            pod
            for pod in observed.pods
            if pod.phase in ("scheduling", "pulling", "loading") and now - pod.since < COMING_AT_MOST
        ),
        stuck=tuple(pod for pod in observed.pods if pod.phase in ("unschedulable", "failed")),
    )


def _fresh_samples(pods: Iterable[PodView], oldest: float, now: float) -> tuple[tuple[PodView, EngineSample], ...]:
    return tuple(
        (pod, pod.sample)
        for pod in pods
        if pod.sample is not None
        and pod.sample_at is not None
        and 0.0 <= now - pod.sample_at <= oldest
        and is_sane(pod.sample)
    )


def is_sane(sample: EngineSample) -> bool:
    """Whether every number is valid. NaN compares false with everything."""
    values = _numbers(sample)
    # The sum detects a NaN, which comparisons of the other values would not.
    if not (min(values) >= 0.0 and max(values) < ABSURD and math.isfinite(sum(values))) or sample.kv_occupancy > 1.01:
        return False
    model = sample.step_model
    if model is not None:
        terms = (model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token)
        if not (model.steps >= 0 and all(0.0 <= term < _MAX_TERM for term in terms)):
            return False
    return is_sane_histogram(sample.ttft) and is_sane_histogram(sample.itl)
