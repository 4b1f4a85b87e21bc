"""The capacity bound: no schedule exceeds it, and it is close to what can be served."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.benchmark.search.bound import Engines, SloTargets, capacity_bound
from sluice_sim.cluster.fleet import Fleet as Simulated
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.scenario import Settings
from sluice_sim.policies.registry import LAWS
from sluice_sim.traces import Arrival
from tests.operator.autoscaler.fleet import spec

MODEL = StepTimeModel(base=0.01, prefill_token=1e-4, prefill_context=1e-8, sequence=2e-4, kv_token=1e-6, steps=1000)


def bound(records: list[RequestRecord], replicas: int, model: StepTimeModel = MODEL) -> int:
    return capacity_bound(records, Engines(replicas, model, 64), SloTargets(0.5, 0.05))


def test_the_bound_is_all_requests_if_everything_fits() -> None:
    records = [RequestRecord(0.3 * k, 100, 20) for k in range(50)]
    assert bound(records, replicas=3) == 50
    assert bound([], replicas=1) == 0


def test_prompts_alone_are_bounded_by_the_time_until_the_last_is_due() -> None:
    records = [
        RequestRecord(0.0, 10_000, 1) for _ in range(40)
    ]  # 1.5 s each, due within half a second: one slot of 5 s
    assert bound(records, replicas=2) == int(2 * 5.0 / (1.0 + 0.5))


def test_the_bound_grows_with_engines_up_to_the_offered_requests() -> None:
    dice = random.Random(4)
    records = [RequestRecord(0.02 * k, dice.randint(10, 3000), dice.randint(1, 300)) for k in range(1500)]
    found = [bound(records, replicas) for replicas in (1, 2, 4, 64)]
    assert found == sorted(found) and found[0] < 0.7 * len(records) and found[-1] == len(records)


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from(["fcfs", "priority", "srpf", "edf", "fair"]),
    st.sampled_from(["admission-only", "replicas-only"]),
    st.integers(1, 3),
    st.integers(0, 2**16),
)
def test_no_schedule_serves_more_than_the_bound(policy: str, law: str, replicas: int, seed: int) -> None:
    """Every policy, with and without admission, on loads around what the engines hold."""
    dice, at, arrivals = random.Random(seed), 0.0, []
    for _ in range(70):
        at += dice.expovariate(dice.choice([3.0, 12.0]) * replicas)
        arrivals.append(Arrival(at, dice.choice([20, 200, 1500]), dice.choice([1, 10, 80])))
    asked = spec(
        slo={"ttftMilliseconds": 500, "itlMilliseconds": 50},
        scaling={"minReplicas": replicas, "maxReplicas": replicas},
        engine={"scheduling": {"policy": policy, "maxNumSeqs": 64}},
    )
    run = Simulated(asked, Settings(MODEL, 32_000, begin=replicas), LAWS[law].default()).run(arrivals)
    good = sum(one.good for one in run.records)
    assert 0 < good <= bound(run.records, replicas)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_equal_requests_are_bounded_near_what_steps_of_the_target_hold(share: float) -> None:
    """200 s of equal requests, more than fit: S(n) at the target, prompts included, within a tenth."""
    prompt, output = round(500 * share), 100
    records = [RequestRecord(0.02 * k, prompt, output) for k in range(10_000)]
    own = MODEL.sequence + MODEL.kv_token * (prompt + output / 2)
    rows = (0.05 - MODEL.base) / (own + (MODEL.prefill_token * prompt) / output)  # w, as the fast loop has it
    rate = min(rows, 64.0) / (output * 0.05)
    assert rate * 200.0 <= bound(records, replicas=1) <= 1.15 * rate * 200.0
