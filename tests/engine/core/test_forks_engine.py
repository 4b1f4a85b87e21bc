"""Several samples of one prompt in the engine: what fails, fails alone or for all that need it, and leaves nothing."""

from pathlib import Path

import pytest
import torch

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams
from tests.engine.oracle import Oracle, options, run, submit

GOOD = [5, 6, 7]


def ask(engine: EngineLoop, name: str, prompt: list[int], count: int, **params: object) -> messages.Rejected | None:
    values: dict[str, object] = {"max_tokens": 8, "temperature": 1.0, "seed": 0, "ignore_eos": True}
    sampling = SamplingParams(**(values | params))  # type: ignore[arg-type]
    samples = tuple((f"{name}{seed}", seed) for seed in range(1, count))
    return engine.submit(messages.Submit(f"{name}0", tuple(prompt), sampling, 0.0, samples=samples))


def ends(reports: list[messages.StepReport]) -> dict[str, messages.Delta]:
    return {delta.request_id: delta for report in reports for delta in report.deltas if delta.finish}


def text(reports: list[messages.StepReport], name: str) -> list[int]:
    return [token for report in reports for d in report.deltas if d.request_id == name for token in d.token_ids]


def test_a_prompt_that_raises_fails_all_its_samples_and_no_other_request(tiny_llama: Path, oracle: Oracle) -> None:
    engine = EngineLoop(options(tiny_llama))

    def refuse(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if bool((inputs[0] == 99).any()):
            raise RuntimeError("no such token today")

    engine.model.module.get_input_embeddings().register_forward_pre_hook(refuse)
    submit(engine, "good", GOOD, 10)
    ask(engine, "bad", [*range(2, 40), 99], 3)
    reports = run(engine)
    assert all("no such token today" in str(ends(reports)[f"bad{sample}"].error) for sample in range(3))
    oracle.expect(GOOD, text(reports, "good"), 10)
    assert engine.scheduler.pool.held == 0


def test_a_sample_that_cannot_be_set_up_fails_alone(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, undisturbed = EngineLoop(options(tiny_llama)), EngineLoop(options(tiny_llama))
    prompt = list(range(2, 40))
    real = engine.runner._sampler.join  # type: ignore[union-attr]

    def join(slot: int, sampling: SamplingParams, *rest: object) -> None:
        if sampling.seed == 1:
            raise MemoryError("no room for its counts")
        real(slot, sampling, *rest)

    monkeypatch.setattr(engine.runner._sampler, "join", join)  # type: ignore[union-attr]
    for each in (engine, undisturbed):
        ask(each, "s", prompt, 3)
    reports, whole = run(engine), run(undisturbed)
    assert "no room for its counts" in str(ends(reports)["s1"].error)
    for name in ("s0", "s2"):
        assert ends(reports)[name].finish == "length"
        assert text(reports, name) == text(whole, name)
    assert engine.scheduler.pool.held == 0


def test_a_request_that_can_never_run_fails_with_all_its_samples(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    assert ask(engine, "s", [5, 999], 3) is None
    ended = ends(run(engine))
    assert sorted(ended) == ["s0", "s1", "s2"]
    assert all(delta.finish == "error" and "outside the vocabulary" in str(delta.error) for delta in ended.values())


def test_a_rejection_rejects_every_sample_once(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    engine.drain()
    refused = ask(engine, "s", GOOD, 4)
    assert refused is not None and refused.request_id == "s0" and refused.reason == "draining"
    assert not engine.scheduler.requests


def test_cancelling_all_samples_at_any_time_frees_all_blocks(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, max_batched_tokens=16))
    for steps in range(6):
        ask(engine, "s", list(range(2, 45)), 4)
        for _ in range(steps):
            engine.step()
        for sample in range(4):
            engine.cancel(messages.Cancel(f"s{sample}", "abort"))
            engine.scheduler.check()
        assert not engine.scheduler.requests
        run(engine)  # a step may be under way
        assert engine.scheduler.pool.held == 0
