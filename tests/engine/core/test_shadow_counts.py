"""Step reports carry what the shadow queues count: each first arrival once, rejected ones too."""

from pathlib import Path

import msgspec
import pytest

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.oracle import options, run, submit
from tests.engine.texts import save_texts_model

GREEDY = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)


def counted(reports: list[messages.StepReport]) -> list[messages.ShadowCounts]:
    return [report.shadow for report in reports if report.shadow is not None]


def test_only_reports_after_an_arrival_carry_counts(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    for name in ("a", "b"):
        submit(engine, name, [5, 6, 7], 4)
    first, *others = run(engine)
    assert first.shadow == messages.ShadowCounts(2, 0, (0.0,) * len(LOADS))
    assert len(others) >= 3 and not counted(others)


def test_a_request_that_another_replica_rejected_is_not_seen_again(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    work = messages.Submit("a", (5, 6, 7), GREEDY, 0.0, samples=(("a1", 1),), offered_before=True)
    assert engine.submit(work) is None
    assert all(request.offered_before for request in engine.scheduler.requests.values())
    assert not counted(run(engine))


def test_texts_are_seen_once(tmp_path: Path) -> None:
    engine = EngineLoop(options(save_texts_model("bert", tmp_path)))
    text = messages.Encode("a", (5, 6, 7), 0.0)
    engine.submit(text)
    engine.submit(msgspec.structs.replace(text, request_id="b", offered_before=True))
    assert [counts.requests for counts in counted(run(engine))] == [1]


def test_a_rejection_is_reported_although_no_step_follows(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, ttft_target=2.0))
    submit(engine, "first", [5, 6, 7], 2)
    run(engine)
    engine.fit.model = StepTimeModel(base=0.1, prefill_token=0.1, steps=1000)  # a slow machine
    submit(engine, "second", [5, 6, 7], 2)
    run(engine)
    prompts = {"late": tuple(range(3, 15)), "unreachable": tuple(range(3, 33))}
    for name, prompt in prompts.items():
        rejected = engine.submit(messages.Submit(name, prompt, GREEDY, 0.0, ttft_target=1.0))
        assert rejected is not None and rejected.request_id == name
    assert engine.has_work
    report = engine.step()
    assert report is not None and report.seconds == 0.0 and not report.deltas
    assert report.shadow is not None and (report.shadow.requests, report.shadow.unreachable) == (2, 1)
    assert not engine.has_work and engine.step() is None


def test_counts_of_all_reports_are_those_of_the_queues(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, ttft_target=2.0))
    submit(engine, "first", [5, 6, 7], 2)
    reports = run(engine)
    engine.fit.model = StepTimeModel(base=0.1, prefill_token=0.05, sequence=0.01, steps=1000)
    for index in range(12):
        submit(engine, f"{index}", [5 + index, 6, 7, 8, 9, 10], 3)
        if index % 3 == 0:
            engine.fit.model = StepTimeModel(base=0.1, prefill_token=0.05, sequence=0.01, steps=1000)
            report = engine.step()
            reports += [] if report is None else [report]
    reports += run(engine)
    found, queues = counted(reports), engine.scheduler.shadow
    assert len(found) > 2
    assert sum(counts.requests for counts in found) == queues.arrived == 13
    assert sum(counts.unreachable for counts in found) == queues.unreachable
    assert [sum(late) for late in zip(*(counts.late for counts in found), strict=True)] == pytest.approx(queues.late)
    assert queues.late[-1] > 0.0
