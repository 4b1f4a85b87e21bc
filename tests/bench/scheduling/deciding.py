"""Processor time of one decision for a fleet, typical and worst case: it bounds the operator's time per deployment.

The worst case is a pass that changes the count (it explains what fewer would have served) with the largest state: a
slot for every quarter of a minute, an hour of comparisons, and a past that searches for the most replicas.
"""

import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.replicas.history import Comparison, History, Slot
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import Observed
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.step_time import StepTimeModel
from tests.bench.report.row import Report, at_most
from tests.counting import count_calls
from tests.operator.autoscaler.fleet import Engine, Story, spec

LIGHT: Final = StepTimeModel(base=0.02, prefill_token=2e-6, sequence=2e-5, kv_token=1e-9, steps=1000)
REPLICAS: Final = 64
MOST_MS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Deciding:
    """Processor seconds of one decision."""

    replicas: int
    usual: float
    worst: float  # of the slowest kind of pass


def report(_out: Path, say: Callable[[str], None]) -> Report:
    """Rows for `make bench`."""
    say(f"one decision for {REPLICAS} replicas")
    found = deciding()
    rows = [
        at_most(f"decide() for {REPLICAS} replicas, processor time", 1e3 * found.usual, MOST_MS, " ms"),
        at_most("the same at its slowest", 1e3 * found.worst, MOST_MS, " ms"),
    ]
    return Report(rows, asdict(found))


def deciding(replicas: int = REPLICAS, repeats: int = 15) -> Deciding:
    """Processor time of decide(): the minimum of `repeats`, to exclude other load on the machine."""
    return Deciding(replicas, _least(usual(replicas), repeats), _least(slowest(replicas), repeats))


def calls(story: Story) -> int:
    """Number of Python function calls of one decision: a measure of its cost that is the same on any machine."""
    observed = _tick(story)

    def one() -> None:
        _, story.state = decide(story.spec, observed, story.state, story.now)

    return count_calls(one)


def usual(replicas: int) -> Story:
    """A fleet under its typical load."""
    return _fleet(replicas, {})


def slowest(replicas: int) -> Story:
    """The largest state and the largest engines, before a change of the target."""
    big = {
        "slo": {"ttftMilliseconds": 60, "itlMilliseconds": 200},
        "admission": {"concurrency": {"min": 2, "max": 4096}},
        "engine": {"scheduling": {"maxNumSeqs": 4096}},
    }
    story = _fleet(replicas, big, LIGHT)
    story.state = replace(story.state, history=full_history(replicas, story.now))
    story.spec = story.spec.model_copy(
        update={"scaling": story.spec.scaling.model_copy(update={"min_replicas": 1, "max_replicas": 1000})}
    )
    return story


def full_history(replicas: int, now: float) -> History:
    """As much as a history keeps: a load that fewer than six times the replicas do not serve."""
    late = array("d", [0.0 if load < 0.16 else 10.0 * load * replicas for load in LOADS])
    slots = range(int(900.0 / LAW.slot_seconds))
    comparisons, bins = range(12), range(int(LAW.starting_most_seconds / LAW.bin_seconds))
    minutes = LAW.error_seconds / len(comparisons)
    return History(
        slots=tuple(
            Slot(now - LAW.slot_seconds * (age + 1), now - LAW.slot_seconds * age, replicas, 40.0 * replicas, 0.0, late)
            for age in reversed(slots)
        ),
        comparisons=tuple(
            Comparison(now - minutes * (age + 1), now - minutes * age, 800.0 * replicas, 0.0, late, 40.0 * replicas)
            for age in reversed(comparisons)
        ),
        arrivals=tuple((now - LAW.bin_seconds * age, 3.0 * replicas - age) for age in reversed(bins)),
        counted=(now, 0.0),
        ready=replicas,
        seen_at=now,
    )


def _fleet(replicas: int, changes: dict[str, Any], model: StepTimeModel | None = None) -> Story:
    scaling = {"minReplicas": 1, "maxReplicas": replicas}
    story = Story(spec=spec(scaling=scaling, **changes), replicas=replicas, interval=1.0)
    if model is not None:
        story.engines = {name: Engine(limit=4096, model=model) for name in story.engines}
    story.run(35, 1.5 * replicas)
    return story


def _tick(story: Story) -> Observed:
    """Advance by one second."""
    story.now += 1.0
    for name, engine in story.engines.items():
        engine.pass_time(1.5, 1.0)
        story.heard[name] = (engine.sample(), story.now)
    return story.observed()


def _least(story: Story, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        observed = _tick(story)
        begun = time.process_time()
        _, state = decide(story.spec, observed, story.state, story.now)
        seconds.append(time.process_time() - begun)
        story.state = state
    return min(seconds)
