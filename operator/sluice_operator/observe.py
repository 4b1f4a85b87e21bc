"""Gather: what the Deployment, its pods and their engines say, as the plain values that decide() and the status read.

No judgement here. Ages are seconds of our own monotonic clock since we first saw a thing: stamps are of other clocks,
which may be minutes off. Only an engine's own account of its start can make it older than our first look.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sluice_operator import pods as lens
from sluice_operator.decide.values import ColdStart, EngineSample, Observed, PodPhase, PodView
from sluice_operator.pods import Trouble
from sluice_operator.render import names
from sluice_operator.scrape import ScrapeError, Scraper, scrape_all
from sluice_operator.world import Endpoint, Key, Object, World

ASKED: Final = ("loading", "ready", "draining")  # an engine answers from its first second on
LAG: Final = 10.0  # seconds that a pod may be older than our last look without it, or less long ready: lists lag
BLINK: Final = 15.0  # seconds unready: no queue of others gathers meanwhile, and what is warm does not cool


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a pod's container: which it is, and the monotonic seconds of the looks around its beginning."""

    of: datetime | None  # its stamp: a name for it, and no time
    seen: float  # the first look that showed it
    after: float  # the last look that did not; -inf: it was there before we looked


@dataclass(frozen=True, slots=True)
class Lost:
    """A readiness that was lost: since when it had stood, when it went, and which start of the container it was of."""

    since: float
    at: float
    start: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What observation carries from one pass to the next; only of pods that still exist."""

    phases: Mapping[str, tuple[PodPhase, float]] = field(
        default_factory=dict
    )  # pod → phase, monotonic seconds of entry
    starts: Mapping[str, Start] = field(default_factory=dict)
    looked: float = -math.inf  # monotonic seconds of the newest look
    samples: Mapping[str, tuple[EngineSample, float]] = field(default_factory=dict)  # pod → newest good scrape, when
    lost: Mapping[str, Lost] = field(default_factory=dict)  # pod that was ready before → its newest loss of that


@dataclass(frozen=True, slots=True)
class PodReport:
    """One pod: what decide() sees of it, and what only the status needs."""

    view: PodView
    endpoint: Endpoint | None = None
    trouble: Trouble | None = None
    template_hash: str = ""
    scrape_error: str = ""
    deletion_cost: int | None = None  # the annotation that orders a scale-in, as it stands now


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything one pass observed."""

    deployment: Object | None
    pods: tuple[PodReport, ...]
    held: int | None = None  # requests that the front door holds for want of a replica; None: there is no such door
    wall: float | None = None  # seconds since 1970

    @property
    def observed(self) -> Observed:
        """What decide() may look at."""
        views = tuple(report.view for report in self.pods)
        return Observed(pods=views, replicas=replicas_of(self.deployment), held=self.held, wall=self.wall)

    @property
    def ready(self) -> int:
        """Pods that serve."""
        return sum(report.view.phase == "ready" for report in self.pods)

    @property
    def scrape_failures(self) -> int:
        """Engines that should have answered and did not."""
        return sum(bool(report.scrape_error) for report in self.pods)


def replicas_of(deployment: Object | None) -> int | None:
    """What the Deployment asks for; None where there is none."""
    if deployment is None:
        return None
    return int(deployment.get("spec", {}).get("replicas", 1))


async def observe(
    key: Key,
    world: World,
    scraper: Scraper,
    seen: Seen,
    *,
    clock: Callable[[], float],
    wall: datetime,
) -> tuple[Fleet, Seen]:
    """Look once. Raises WorldError when the world cannot be read; an engine that does not answer is only reported."""
    deployment = await world.get("Deployment", key.namespace, names.deployment(key.name))
    found = await world.list("Pod", key.namespace, names.selector(key.name))
    # Evicted pods stay for days and are replaced already: they speak only while nobody else does.
    found = [pod for pod in found if not lens.has_ended(pod)] or found
    phases = {_name(pod): lens.phase_of(pod) for pod in found}
    endpoints = {_name(pod): world.endpoint(pod) for pod in found}
    asked = [e for name, e in endpoints.items() if e is not None and phases[name][0] in ASKED]
    answers = await scrape_all(scraper, asked)
    now = clock()
    starts = {_name(pod): lens.start_of(pod) for pod in found}
    seen = _remember(seen, {name: phase for name, (phase, _) in phases.items()}, starts, answers, now)
    reports = tuple(_report(pod, phases[_name(pod)][1], endpoints, answers, seen, now) for pod in found)
    listed = tuple(sorted(reports, key=lambda report: report.view.name))
    held = world.held(key.namespace, key.name)
    return Fleet(deployment=deployment, pods=listed, held=held, wall=wall.timestamp()), seen


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _remember(
    seen: Seen,
    phases: Mapping[str, PodPhase],
    starts: Mapping[str, datetime | None],
    answers: Mapping[str, EngineSample | ScrapeError],
    now: float,
) -> Seen:
    """A pod that is ready again after a blink has been so all the while, unless it was started anew in between."""
    entered, lost = {}, {name: loss for name, loss in seen.lost.items() if name in phases}
    for name, phase in phases.items():
        before, loss = seen.phases.get(name), lost.get(name)
        if before is not None and before[0] == "ready" != phase:
            lost[name] = Lost(before[1], now, starts[name])
        if before is not None and before[0] == phase:
            entered[name] = before
        elif phase == "ready" and loss is not None and now - loss.at <= BLINK and loss.start == starts[name]:
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
    return Seen(phases=entered, starts=began, looked=now, samples=samples, lost=lost)


def _report(
    pod: Object,
    trouble: Trouble | None,
    endpoints: Mapping[str, Endpoint | None],
    answers: Mapping[str, EngineSample | ScrapeError],
    seen: Seen,
    now: float,
) -> PodReport:
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
        message=trouble.message if trouble else "",
        start_age=_start_age(name, phase, answer, seen, now),
        cold_start=_cold_start(pod, sample, since - seen.starts[name].after),
    )
    return PodReport(
        view=view,
        endpoint=endpoints[name],
        trouble=trouble,
        template_hash=lens.template_hash(pod),
        scrape_error=str(answer) if isinstance(answer, ScrapeError) and phase == "ready" else "",
        deletion_cost=lens.deletion_cost(pod),
    )


def _start_age(name: str, phase: PodPhase, answer: EngineSample | ScrapeError | None, seen: Seen, now: float) -> float:
    """Seconds since the start that the pod is in began, or since it lost its readiness: as far as we saw, or as the
    loading engine says that it has spent."""
    if name in seen.lost:
        return now - max(seen.lost[name].at, seen.starts[name].seen)
    ages = [now - seen.starts[name].seen]
    if phase == "loading" and isinstance(answer, EngineSample):
        ages.append(sum(seconds for _, seconds in answer.load_seconds))
    return max(ages)


def _cold_start(pod: Object, sample: EngineSample | None, at_most: float) -> ColdStart | None:
    """What its stamps say, unless that is longer than we have known of the pod: then a clock was set meanwhile."""
    start = lens.cold_start(pod, sample)
    return None if start is None or start.total > at_most + LAG else start
