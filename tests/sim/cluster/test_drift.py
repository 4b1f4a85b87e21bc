"""A machine that is slower in some seconds: the estimate from its steps, and the replay in the simulator."""

import random

import pytest

from sluice_perfmodel.step_time import StepTimeModel, StepWork
from tests.bench.fidelity.drift import Drifting, slowness

PROFILE = StepTimeModel(base=0.003, prefill_token=1e-4, prefill_context=1e-7, sequence=2e-4, kv_token=1e-6)
SLOW = {0: 1.0, 1: 2.5, 2: 0.8, 4: 1.3}


def served(times: Drifting, draw: random.Random) -> list[tuple[float, StepWork, float]]:
    """Steps of every kind, one after another, for five seconds."""
    steps, at = [], 0.0
    while at < 5.0:
        work = StepWork(draw.choice((0, 0, 64, 256)), draw.randrange(4096), draw.randint(1, 64), draw.randrange(9000))
        end = times.end(work, at)
        steps.append((at, work, end - at))
        at = end
    return steps


def test_slowness_is_estimated_from_steps_of_any_composition() -> None:
    steps = served(Drifting(PROFILE, SLOW), random.Random(1))
    assert slowness(steps, PROFILE) == pytest.approx({**SLOW, 3: 1.0})


def test_the_drift_replay_reproduces_the_machines_slowness_per_second() -> None:
    told = Drifting(PROFILE, slowness(served(Drifting(PROFILE, SLOW), random.Random(1)), PROFILE))
    work = StepWork(sequences=8, kv_tokens=800)
    took = [told.end(work, second + 0.5) - second - 0.5 for second in range(7)]
    assert took == pytest.approx([PROFILE.predict(work) * SLOW.get(second, 1.0) for second in range(7)])
