"""The engine with a model that embeds or scores: its rows are those of transformers, its steps are full, not padded."""

import struct
from pathlib import Path

import pytest
import torch

from sluice_engine import messages
from sluice_engine.backend.pooled_runner import PooledRunner
from sluice_engine.core.engine import EngineLoop
from tests.engine.oracle import options, run, submit
from tests.engine.texts import Reference, save_texts_model, texts

LENGTHS = [1, 7, 200, 33, 90, 12, 150, 41, 64, 5, 18, 250, 77, 101, 30, 9] * 2


def encode(engine: EngineLoop, given: list[list[int]], types: list[list[int]] | None = None) -> None:
    for index, text in enumerate(given):
        kinds = tuple(types[index]) if types else ()
        assert engine.submit(messages.Encode(str(index), tuple(text), 0.0, token_types=kinds)) is None


def vectors(reports: list[messages.StepReport]) -> dict[str, torch.Tensor]:
    """What each text was answered with."""
    found: dict[str, torch.Tensor] = {}
    for delta in (delta for report in reports for delta in report.deltas):
        assert delta.finish == "stop", delta
        assert delta.token_ids == ()
        found[delta.request_id] = torch.tensor(struct.unpack(f"<{len(delta.vector) // 4}f", delta.vector))
    return found


@pytest.mark.parametrize("name", ["bert", "qwen3", "xlm-roberta-score"])
def test_mixed_lengths_through_full_steps_equal_a_padded_batch(name: str, tmp_path: Path) -> None:
    engine = EngineLoop(options(save_texts_model(name, tmp_path), max_batched_tokens=512))
    given = texts(LENGTHS)
    runner = engine.runner
    assert isinstance(runner, PooledRunner)
    before, rows_before = runner.tokens, runner.computed_rows
    encode(engine, given)
    reports = run(engine)
    found = vectors(reports)
    want = Reference(name, tmp_path).rows(given, "last" if name == "qwen3" else "mean", normalize=True)
    got = torch.stack([found[str(index)] for index in range(len(given))])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert runner.tokens - before == sum(LENGTHS)
    assert runner.computed_rows - rows_before <= 1.05 * sum(LENGTHS)
    assert max(report.prefill_tokens for report in reports) <= 512
    assert len([report for report in reports if report.seconds > 0]) <= 1.3 * sum(LENGTHS) / 512
    assert sum(report.prompt_tokens for report in reports) == sum(LENGTHS)
    assert engine.ready.task == ("score" if name.endswith("-score") else "embed")
    assert engine.ready.vector_size == want.shape[1]


def test_a_text_that_fails_or_gives_nan_fails_alone(tmp_path: Path) -> None:
    engine = EngineLoop(options(save_texts_model("bert", tmp_path)))
    with torch.no_grad():
        engine.model.module.get_input_embeddings().weight[99] = float("nan")
    encode(engine, [[5, 6, 7], [5, 99, 7], [5, 6, 7, 8]], [[0] * 3, [0] * 3, [0, 1, 2, 0]])  # there are two types
    deltas = {delta.request_id: delta for report in run(engine) for delta in report.deltas}
    assert deltas["0"].finish == "stop"
    assert len(deltas["0"].vector) == 4 * 64
    assert deltas["1"].error == "the model's output for this request is not a number"
    assert deltas["2"].error is not None
    assert deltas["2"].error.startswith("the model failed on this request")
    assert not deltas["1"].vector
    assert not deltas["2"].vector


def test_a_task_that_the_model_does_not_serve_is_rejected(tmp_path: Path, tiny_llama: Path) -> None:
    embeds = EngineLoop(options(save_texts_model("bert", tmp_path)))
    submit(embeds, "a", [5, 6], 3)
    generates = EngineLoop(options(tiny_llama))
    encode(generates, [[5, 6]])
    for engine, task in ((embeds, "embed"), (generates, "generate")):
        (delta,) = (delta for report in run(engine) for delta in report.deltas)
        assert delta.error == f"this model serves the task {task}, and the request is for another task"


def test_idle_ticks_leave_the_limit_at_its_bound(tmp_path: Path) -> None:
    now = [0.0]
    engine = EngineLoop(options(save_texts_model("bert", tmp_path), itl_target=1e-6), clock=lambda: now[0])
    for turn in range(60):
        now[0] += 2.0
        engine.submit(messages.Encode(str(turn), (5, 6, 7), now[0]))
        engine.step()
    assert engine.limits.concurrency == engine.options.limits.concurrency_max
