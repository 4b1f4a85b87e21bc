"""Preemption by swapping to host memory or by recomputing: the step-time model chooses, and no token changes."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.core.engine import EngineLoop
from sluice_engine.kvcache.host_swap import HostSwap
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.policies import POLICIES
from sluice_engine.scheduler.transitions import recompute_seconds
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.oracle import options, run, submit
from tests.engine.paper import PaperRunner, undisturbed

MODEL = StepTimeModel(base=0.004, prefill_token=1e-4, prefill_context=1e-7, sequence=5e-4, steps=1000)
BLOCK_BYTES = 2 * 2 * 16 * 2 * 16 * 4

loads = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "size": st.sampled_from([1, 4, 16]),
        "spare": st.integers(0, 10),
        "host": st.integers(0, 40),
        "seconds": st.sampled_from([0.0, 2e-4, 1.0]),  # always pays, pays for some, never does
        "seqs": st.integers(2, 6),
        "requests": st.integers(2, 16),
        "policy": st.sampled_from(sorted(POLICIES)),
        "prefix_cache": st.booleans(),
        "ahead": st.booleans(),
    }
)


@settings(max_examples=120, deadline=None)
@given(loads)
def test_a_preempted_request_swapped_or_recomputed_has_the_tokens_of_an_undisturbed_run(load: dict[str, int]) -> None:
    size, length = load["size"], 48
    config = SchedulerConfig(
        num_blocks=-(-length // size) + load["spare"],
        block_size=size,
        max_num_seqs=load["seqs"],
        max_model_length=length,
        prefix_cache=bool(load["prefix_cache"]),
        policy=str(load["policy"]),
        predicted_admission=False,
        host_blocks=load["host"],
        swap_block_seconds=load["seconds"],
    )
    engine = Scheduler(config, LimitController(Limits(concurrency_max=load["seqs"], max_batched_tokens=32)))
    runner = PaperRunner(config.num_blocks, size, host_blocks=load["host"])
    dice = random.Random(load["seed"])
    arrivals = [
        Request(
            str(index),
            [dice.randrange(3) for _ in range(dice.randint(1, 20))],
            dice.randint(1, 27),
            0.0,
            sampling=SamplingParams(seed=index),
            priority=dice.randint(-9, 9),
            tenant=dice.choice("ab"),
        )
        for index in range(load["requests"])
    ]
    expected = {each.request_id: undisturbed(each.sampling.seed or 0, each.known, each.max_tokens) for each in arrivals}
    told: dict[str, list[int]] = {name: [] for name in expected}
    under_way: tuple[Plan, list[int]] | None = None
    for now in range(20_000):
        while arrivals and dice.random() < 0.5:
            engine.submit(arrivals.pop())
        if engine.requests and dice.random() < 0.02:
            gone = dice.choice(sorted(engine.requests))
            assert engine.cancel(gone)
            del expected[gone]
        plan = engine.plan(float(now), MODEL) if under_way is None else under_way[0]
        if plan is None:
            if not arrivals:
                break
            continue
        sampled = runner.run(plan) if under_way is None else under_way[1]
        ahead = engine.plan_ahead(float(now), MODEL) if load["ahead"] else None
        under_way = None if ahead is None else (ahead, runner.run(ahead))
        for outcome in engine.settle(plan, sampled, float(now)):
            told[outcome.request_id] += outcome.token_ids
        engine.check()
    assert {name: told[name] for name in expected} == expected
    assert engine.pool.held == 0 and engine.state.swap.free == load["host"]
    assert load["seconds"] < 1.0 or engine.swaps == 0


def test_swapping_saves_time_where_the_fitted_model_predicts_a_longer_recompute_and_there_is_room() -> None:
    config = SchedulerConfig(num_blocks=32, max_model_length=512, host_blocks=8, swap_block_seconds=7e-4)
    preempted = Request("a", list(range(128)), 9, 0.0)
    preempted.computed = 127  # computing again: 13.5 ms; 8 blocks out and back: 11.2 ms
    seconds = recompute_seconds(preempted, MODEL)
    assert seconds is not None and HostSwap(config).saves_time(preempted, seconds)
    assert not HostSwap(replace(config, swap_block_seconds=9e-4)).saves_time(preempted, seconds)
    assert not HostSwap(replace(config, host_blocks=7)).saves_time(preempted, seconds)
    assert recompute_seconds(preempted, replace(MODEL, steps=3)) is None and recompute_seconds(preempted, None) is None


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_real_model_gives_the_same_tokens_after_a_swap(tiny_llama: Path, temperature: float, overlap: bool) -> None:
    def texts(blocks: int) -> tuple[dict[str, list[int]], int]:
        engine = EngineLoop(
            options(tiny_llama, max_model_length=128, kv_size=BLOCK_BYTES * blocks, overlap=overlap, speculation="off")
        )
        engine.scheduler.state.admission._config = replace(engine.scheduler.config, predicted_admission=False)
        engine.scheduler.state.swap._config = replace(engine.scheduler.config, swap_block_seconds=0.0)
        engine.fit.model = replace(MODEL, steps=1000)
        engine.fit.observe = lambda work, seconds: None  # type: ignore[method-assign]
        for index in range(6):
            prompt = [2 + index] * 20
            submit(engine, str(index), prompt, 60, temperature=temperature, seed=index, ignore_eos=True)
        reports, found = run(engine), dict[str, list[int]]()
        for delta in (delta for report in reports for delta in report.deltas):
            found.setdefault(delta.request_id, []).extend(delta.token_ids)
        swaps = sum(report.swaps for report in reports)
        state, total = engine.state(), engine.scheduler.config.host_blocks
        assert state["swaps"] == swaps and state["host_blocks"] == {"held": 0, "total": total} and total > 0
        return found, swaps

    disturbed, swaps = texts(blocks=14)
    assert swaps > 0
    assert disturbed == texts(blocks=64)[0]
