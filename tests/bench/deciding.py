"""How long one decision takes for a fleet, usual and at worst: what bounds the operator's time per deployment.

Worst is the tick on which a dial moves (the binding constraint is searched for) with the longest memory: half an hour
of slots, a full window of ticks, and engines that hold thousands of sequences.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from sluice_law.steptime import StepTimeModel
from sluice_operator.decide import decide
from sluice_operator.decide.values import Observed
from tests.operator.decide_fleet import Engine, Story, spec

LIGHT: Final = StepTimeModel(base=0.02, prefill_token=2e-6, sequence=2e-5, kv_token=1e-9, steps=1000)
SLOTS: Final = 180


@dataclass(frozen=True, slots=True)
class Deciding:
    """Processor seconds of one decision."""

    replicas: int
    usual: float
    worst: float  # the slowest kind of tick


def deciding(replicas: int = 64, repeats: int = 15) -> Deciding:
    """Time decide() by the processor time of the least disturbed of `repeats`: neighbours on the machine are not the
    law's."""
    usual = _least(_fleet(replicas, {}), repeats)
    big = {
        "slo": {"ttftMilliseconds": 60, "itlMilliseconds": 200},
        "admission": {"concurrency": {"min": 2, "max": 4096}},
        "engine": {"scheduling": {"maxNumSeqs": 4096}},
    }
    story = _fleet(replicas, big, LIGHT)
    slots = tuple((slot, 10.0 * replicas) for slot in range(int(story.now // 10) - SLOTS, int(story.now // 10)))
    story.memory = replace(story.memory, slots=slots)
    story.spec = story.spec.model_copy(
        update={"scaling": story.spec.scaling.model_copy(update={"min_replicas": 1, "max_replicas": 1000})}
    )
    return Deciding(replicas, usual, _least(story, repeats))


def _fleet(replicas: int, changes: dict[str, Any], model: StepTimeModel | None = None) -> Story:
    scaling = {"minReplicas": 1, "maxReplicas": replicas}
    story = Story(spec=spec(scaling=scaling, **changes), replicas=replicas, interval=1.0)
    if model is not None:
        story.engines = {name: Engine(limit=4096, model=model) for name in story.engines}
    story.run(35, 1.5 * replicas)
    return story


def _least(story: Story, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        story.now += 1.0
        for name, engine in story.engines.items():
            engine.pass_time(1.5, 1.0)
            story.heard[name] = (engine.sample(), story.now)
        observed: Observed = story.observed()
        begun = time.process_time()
        _, memory = decide(story.spec, observed, story.memory, story.now)
        seconds.append(time.process_time() - begun)
        story.memory = memory
    return min(seconds)
