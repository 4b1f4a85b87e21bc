"""What observation carries from one pass to the next: phases, starts, samples and scrape backoffs of the pods."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sluice_operator.autoscaler.values import EngineSample, PodPhase
from sluice_operator.engines.client import AnswerTooLarge, NoAnswer, ScrapeError
from sluice_operator.engines.scrape_backoff import NO_BACKOFF, ScrapeBackoff

# Seconds of unreadiness that are ignored: too short for a backlog elsewhere or a cold cache.
READINESS_FLAP: Final = 15.0


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """A start of a pod's container: its identifier and the monotonic times of the observations around it."""

    timestamp: datetime | None  # its timestamp, used as an identifier only
    seen_at: float  # first observation that included it
    not_before: float  # last observation that did not; -inf: it existed before the first observation


@dataclass(frozen=True, slots=True)
class ReadinessLoss:
    """A loss of readiness: the start of the ready phase, the time of the loss, the timestamp of the container start."""

    since: float
    at: float
    start: datetime | None


@dataclass(frozen=True, slots=True)
class ObservationState:
    """State that observation carries from one pass to the next; it covers only pods that still exist."""

    # pod → (phase, monotonic seconds at which it was entered)
    phases: Mapping[str, tuple[PodPhase, float]] = field(default_factory=dict)
    starts: Mapping[str, ContainerStart] = field(default_factory=dict)
    observed_at: float = -math.inf  # monotonic seconds of the newest observation
    # pod → (newest valid scrape, its time)
    samples: Mapping[str, tuple[EngineSample, float]] = field(default_factory=dict)
    losses: Mapping[str, ReadinessLoss] = field(default_factory=dict)  # newest, of each pod that was ready before
    backoffs: Mapping[str, ScrapeBackoff] = field(default_factory=dict)  # pod whose newest call timed out → its backoff


def current_backoffs(state: ObservationState, phases: Mapping[str, PodPhase]) -> dict[str, ScrapeBackoff]:
    """Return the backoffs of pods in the same phase as at the last observation: a change of phase ends a backoff."""
    same = {name for name, (phase, _) in state.phases.items() if phases.get(name) == phase}
    return {name: backoff for name, backoff in state.backoffs.items() if name in same}


def _next_backoffs(
    before: Mapping[str, ScrapeBackoff], answers: Mapping[str, EngineSample | ScrapeError], now: float
) -> dict[str, ScrapeBackoff]:
    """The backoffs after this pass. A pod that was not called keeps its own; a refused connection adds none."""
    backoffs = {name: backoff for name, backoff in before.items() if name not in answers}
    for name, answer in answers.items():
        if isinstance(answer, NoAnswer | AnswerTooLarge):
            backoffs[name] = before.get(name, NO_BACKOFF).after_failure(str(answer), now)
    return backoffs


def next_state(
    state: ObservationState,
    phases: Mapping[str, PodPhase],
    starts: Mapping[str, datetime | None],
    answers: Mapping[str, EngineSample | ScrapeError],
    now: float,
) -> ObservationState:
    """Return the next state.

    A pod that is ready again within READINESS_FLAP keeps its ready time unless its container restarted.
    """
    entered, losses = {}, {name: loss for name, loss in state.losses.items() if name in phases}
    for name, phase in phases.items():
        before, loss = state.phases.get(name), losses.get(name)
        if before is not None and before[0] == "ready" != phase:
            losses[name] = ReadinessLoss(before[1], now, starts[name])
        if before is not None and before[0] == phase:
            entered[name] = before
        elif phase == "ready" and loss is not None and now - loss.at <= READINESS_FLAP and loss.start == starts[name]:
            entered[name] = (phase, loss.since)
        else:
            entered[name] = (phase, now)
    began = {
        name: known
        if (known := state.starts.get(name)) is not None and known.timestamp == start
        else ContainerStart(start, now, state.observed_at)
        for name, start in starts.items()
    }
    samples = {name: sample for name, sample in state.samples.items() if name in phases}
    samples.update({name: (answer, now) for name, answer in answers.items() if isinstance(answer, EngineSample)})
    backoffs = _next_backoffs(current_backoffs(state, phases), answers, now)
    return ObservationState(
        phases=entered, starts=began, observed_at=now, samples=samples, losses=losses, backoffs=backoffs
    )
