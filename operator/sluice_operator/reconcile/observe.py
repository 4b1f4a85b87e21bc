"""Gathers the state of the Deployment, its pods and their engines as plain values for decide() and the status.

This module makes no decisions. Ages are seconds of the local monotonic clock since an object was first observed,
because timestamps come from other clocks, which may be minutes off. Only the load time that an engine reports can make
its start older than the first observation.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sluice_operator.autoscaler.values import ColdStart, EngineSample, PodPhase, PodView
from sluice_operator.cluster import pod_status as lens
from sluice_operator.cluster.client import ClusterClient, Endpoint, Object, is_owned
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod, pods_of
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.engines.client import AnswerTooLarge, NoAnswer, ScrapeError, Scraper, scrape_all
from sluice_operator.engines.scrape_backoff import NO_BACKOFF, ScrapeBackoff, can_answer
from sluice_operator.render import names

SCRAPED_PHASES: Final = (
    "loading",
    "ready",
    "draining",
)  # phases in which an engine is scraped: it answers while it loads
LIST_LAG: Final = 10.0  # seconds by which a list may lag: tolerance on the longest possible cold start of a pod
READINESS_FLAP: Final = (
    15.0  # seconds of unreadiness that are ignored: too short for a backlog elsewhere or a cold cache
)


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a pod's container: its identifier and the monotonic times of the observations around it."""

    of: datetime | None  # its timestamp, used as an identifier only
    seen: float  # first observation that included it
    after: float  # last observation that did not; -inf: it existed before the first observation


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
    starts: Mapping[str, Start] = field(default_factory=dict)
    looked: float = -math.inf  # monotonic seconds of the newest observation
    # pod → (newest valid scrape, its time)
    samples: Mapping[str, tuple[EngineSample, float]] = field(default_factory=dict)
    lost: Mapping[str, ReadinessLoss] = field(
        default_factory=dict
    )  # pod that was ready before → its newest loss of readiness
    backoffs: Mapping[str, ScrapeBackoff] = field(default_factory=dict)  # pod whose newest call timed out → its backoff


async def observe(
    resource: Object,
    cluster: ClusterClient,
    scraper: Scraper,
    seen: ObservationState,
    *,
    clock: Callable[[], float],
    wall: datetime,
) -> tuple[ObservedFleet, ObservationState]:
    """Observe once everything that the LLMDeployment `resource` owns. Raises ClusterError if the cluster cannot be read;
    an engine that does not answer is only reported."""
    name, namespace = str(resource["metadata"]["name"]), str(resource["metadata"]["namespace"])
    deployment = await cluster.get("Deployment", namespace, names.deployment(name))
    if deployment is not None and not is_owned(deployment, resource):
        deployment = None
    found = await pods_of(deployment, namespace, name, cluster)
    # Evicted pods stay listed for days and are already replaced: they count only while no other pod exists.
    found = [pod for pod in found if not lens.has_ended(pod)] or found
    phases = {_name(pod): lens.phase_of(pod) for pod in found}
    endpoints = {_name(pod): cluster.endpoint(pod) for pod in found}
    reachable = _reachable(found, {name: phase for name, (phase, _) in phases.items()}, seen, clock())
    asked = [endpoint for name in reachable if (endpoint := endpoints[name]) is not None]
    answers = await scrape_all(scraper, asked)
    now = clock()
    starts = {_name(pod): lens.start_of(pod) for pod in found}
    seen = _remember(seen, {name: phase for name, (phase, _) in phases.items()}, starts, answers, now)
    reports = tuple(_report(pod, phases[_name(pod)][1], endpoints, answers, seen, now) for pod in found)
    listed = tuple(sorted(reports, key=lambda report: report.view.name))
    held = cluster.held(namespace, name)
    return ObservedFleet(deployment=deployment, pods=listed, held=held, wall=wall.timestamp()), seen


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _reachable(found: list[Object], phases: Mapping[str, PodPhase], seen: ObservationState, now: float) -> list[str]:
    """Names of the pods that can be called in this pass."""
    backoffs, reachable = _unbroken(seen, phases), []
    for pod in found:
        name = _name(pod)
        phase, since = seen.phases.get(name, (phases[name], now))
        draining = now - since if phase == phases[name] == "draining" else 0.0
        if phases[name] in SCRAPED_PHASES and can_answer(pod, draining, backoffs.get(name), now):
            reachable.append(name)
    return reachable


def _unbroken(seen: ObservationState, phases: Mapping[str, PodPhase]) -> dict[str, ScrapeBackoff]:
    """The backoffs of pods in the same phase as at the last observation: a change of phase ends a backoff."""
    same = {name for name, (phase, _) in seen.phases.items() if phases.get(name) == phase}
    return {name: backoff for name, backoff in seen.backoffs.items() if name in same}


def _silences(
    before: Mapping[str, ScrapeBackoff], answers: Mapping[str, EngineSample | ScrapeError], now: float
) -> dict[str, ScrapeBackoff]:
    """The backoffs after this pass. A pod that was not called keeps its own; a refused connection adds none."""
    backoffs = {name: backoff for name, backoff in before.items() if name not in answers}
    for name, answer in answers.items():
        if isinstance(answer, NoAnswer | AnswerTooLarge):
            backoffs[name] = before.get(name, NO_BACKOFF).after_failure(str(answer), now)
    return backoffs


def _remember(
    seen: ObservationState,
    phases: Mapping[str, PodPhase],
    starts: Mapping[str, datetime | None],
    answers: Mapping[str, EngineSample | ScrapeError],
    now: float,
) -> ObservationState:
    """The next `ObservationState`. A pod that is ready again within READINESS_FLAP keeps its ready time unless its container restarted."""
    entered, lost = {}, {name: loss for name, loss in seen.lost.items() if name in phases}
    for name, phase in phases.items():
        before, loss = seen.phases.get(name), lost.get(name)
        if before is not None and before[0] == "ready" != phase:
            lost[name] = ReadinessLoss(before[1], now, starts[name])
        if before is not None and before[0] == phase:
            entered[name] = before
        elif phase == "ready" and loss is not None and now - loss.at <= READINESS_FLAP and loss.start == starts[name]:
            entered[name] = (phase, loss.since)
        else:
            entered[name] = (phase, now)
    began = {
        name: known
        if (known := seen.starts.get(name)) is not None and known.of == start
        else Start(start, now, seen.looked)
        for name, start in starts.items()
    }
    samples = {name: sample for name, sample in seen.samples.items() if name in phases}
    samples.update({name: (answer, now) for name, answer in answers.items() if isinstance(answer, EngineSample)})
    backoffs = _silences(_unbroken(seen, phases), answers, now)
    return ObservationState(phases=entered, starts=began, looked=now, samples=samples, lost=lost, backoffs=backoffs)


def _report(
    pod: Object,
    problem: Problem | None,
    endpoints: Mapping[str, Endpoint | None],
    answers: Mapping[str, EngineSample | ScrapeError],
    seen: ObservationState,
    now: float,
) -> ObservedPod:
    name = _name(pod)
    phase, since = lens.phase_of(pod)[0], seen.phases[name][1]
    sample, sample_at = seen.samples.get(name, (None, None))
    answer = answers.get(name)
    view = PodView(
        name=name,
        phase=phase,
        since=since,
        sample=sample,
        sample_at=sample_at,
        message=problem.message if problem else "",
        start_age=_start_age(name, phase, answer, seen, now),
        cold_start=_cold_start(pod, sample, since - seen.starts[name].after),
    )
    return ObservedPod(
        view=view,
        endpoint=endpoints[name],
        problem=problem,
        template_hash=lens.template_hash(pod),
        scrape_error=_scrape_error(answer, seen.backoffs.get(name)) if phase == "ready" else "",
        called=answer is not None,
        answered=isinstance(answer, EngineSample),
        deletion_cost=lens.deletion_cost(pod),
    )


def _scrape_error(answer: EngineSample | ScrapeError | None, backoff: ScrapeBackoff | None) -> str:
    """Why this pass has no sample of the pod; for a pod in backoff, the cause of its newest failed call."""
    if isinstance(answer, ScrapeError):
        return str(answer)
    return backoff.cause if answer is None and backoff is not None else ""


def _start_age(
    name: str, phase: PodPhase, answer: EngineSample | ScrapeError | None, seen: ObservationState, now: float
) -> float:
    """Seconds since the current start began, or since the pod lost its readiness, as observed; while the engine loads,
    at least the load time that it reports."""
    if name in seen.lost:
        return now - max(seen.lost[name].at, seen.starts[name].seen)
    ages = [now - seen.starts[name].seen]
    if phase == "loading" and isinstance(answer, EngineSample):
        ages.append(sum(seconds for _, seconds in answer.load_seconds))
    return max(ages)


def _cold_start(pod: Object, sample: EngineSample | None, at_most: float) -> ColdStart | None:
    """The cold start by its timestamps; None if it exceeds `at_most` + LIST_LAG seconds: a clock was set in between."""
    start = lens.cold_start(pod, sample)
    return None if start is None or start.total > at_most + LIST_LAG else start
