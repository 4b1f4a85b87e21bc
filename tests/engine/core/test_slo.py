"""What a request says about itself reaches the scheduler through the engine's door, and a lost deadline comes back."""

from pathlib import Path

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.oracle import options, run, submit

GREEDY = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)


def test_a_lost_deadline_is_rejected_with_the_predicted_wait(tiny_llama: Path) -> None:
    loop = EngineLoop(options(tiny_llama))
    submit(loop, "first", [5, 6, 7], 2)
    loop.fit.model = StepTimeModel(base=0.5, prefill_token=0.1, steps=1000)  # a slow machine
    loop.step()
    late = loop.submit(messages.Submit("late", tuple(range(3, 33)), GREEDY, 0.0, ttft_target=1.0))
    assert late is not None and late.reason == "slo_unreachable" and late.retry_after > 3.0
    assert loop.submit(messages.Submit("patient", tuple(range(3, 33)), GREEDY, 0.0)) is None
    ended = {delta.request_id for report in run(loop) for delta in report.deltas if delta.finish}
    assert "patient" in ended and "late" not in ended


def test_policy_priority_and_tenant_decide_the_order_of_admission(tiny_llama: Path) -> None:
    loop = EngineLoop(options(tiny_llama, policy="priority", max_num_seqs=1, concurrency_max=1))
    for name, priority in (("low", -10), ("high", 10), ("middle", 0)):
        assert loop.submit(messages.Submit(name, (5, 6, 7), GREEDY, 0.0, priority=priority, tenant=name)) is None
    order = [delta.request_id for report in run(loop) for delta in report.deltas if delta.finish]
    assert order == ["high", "middle", "low"]
    assert loop.scheduler.state.counters.served("high") > 0
