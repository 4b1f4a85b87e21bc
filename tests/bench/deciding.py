"""Processor time of one decision for a fleet, typical and worst case: it bounds the operator's time per deployment.

The worst case is a pass that changes a target (it searches for the binding constraint) with the largest state: half an
hour of slots, a full window of passes, and engines with thousands of sequences.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.signals.arrival_history import ArrivalState
from sluice_operator.autoscaler.values import Observed
from sluice_perfmodel.step_time import StepTimeModel
from tests.bench.row import Report, at_most
from tests.counting import count_calls
from tests.operator.autoscaler.fleet import Engine, Story, spec, with_signals

LIGHT: Final = StepTimeModel(base=0.02, prefill_token=2e-6, sequence=2e-5, kv_token=1e-9, steps=1000)
SLOTS: Final = 180
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
    slots = tuple((slot, 10.0 * replicas) for slot in range(int(story.now // 10) - SLOTS, int(story.now // 10)))
    story.state = with_signals(story.state, arrivals=ArrivalState(slots))
    story.spec = story.spec.model_copy(
        update={"scaling": story.spec.scaling.model_copy(update={"min_replicas": 1, "max_replicas": 1000})}
    )
    return story


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
