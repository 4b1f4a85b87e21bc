"""The engine as a whole, in process: failures stay with their request, limits move, the pace is held."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.oracle import Oracle, finish, options, run, submit

GOOD = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def poison(oracle: Oracle) -> int:
    """A token that none of the good texts holds."""
    prompts = [GOOD, *([*GOOD, index + 2] for index in range(8))]
    used = {token for prompt in prompts for token in (*prompt, *oracle.generate(prompt, 40))}
    return next(token for token in range(127, 1, -1) if token not in used)


@pytest.fixture(scope="module")
def poisoned(tiny_llama: Path, poison: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with one NaN embedding: whoever uses that token computes NaN, in KV and logits."""
    folder = tmp_path_factory.mktemp("poisoned") / "model"
    shutil.copytree(tiny_llama, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][poison] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def finishes(reports: list[messages.StepReport]) -> dict[str, messages.Delta]:
    return {delta.request_id: delta for report in reports for delta in report.deltas if delta.finish}


def test_nan_logits_fail_their_request_and_none_that_reuses_its_blocks(
    poisoned: Path, poison: int, oracle: Oracle
) -> None:
    block_bytes = 2 * 2 * 16 * 2 * 16 * 4
    engine = EngineLoop(options(poisoned, max_model_length=64, kv_size=block_bytes * 8))
    submit(engine, "good", GOOD, 20)
    submit(engine, "bad", [3, poison, *range(10, 40)], 20)
    engine.limits.patch({"max_batched_tokens": 16}, None, 0.0)  # found in the first chunk, not only at the last
    first = engine.step()
    assert first is not None and finishes([first])["bad"].finish == "error"
    ended = finishes([first, *run(engine)])
    assert "not a number" in str(ended["bad"].error)
    assert ended["good"].finish in ("length", "stop")
    texts: dict[str, list[int]] = {}
    for index in range(8):  # every block is used again
        submit(engine, str(index), [*GOOD, index + 2], 40)
    texts = finish(engine)
    for index in range(8):
        oracle.expect([*GOOD, index + 2], texts[str(index)], 40)


def test_a_request_that_raises_in_the_model_fails_alone(tiny_llama: Path, oracle: Oracle) -> None:
    engine = EngineLoop(options(tiny_llama))
    embed = engine.model.module.get_input_embeddings()

    def refuse(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if bool((inputs[0] == 99).any()):
            raise RuntimeError("no such token today")

    embed.register_forward_pre_hook(refuse)
    submit(engine, "good", [5, 6, 7], 10)
    submit(engine, "bad", [3, 99], 10)
    reports = run(engine)
    ended = finishes(reports)
    assert "no such token today" in str(ended["bad"].error)
    got = [token for report in reports for d in report.deltas if d.request_id == "good" for token in d.token_ids]
    oracle.expect([5, 6, 7], got, 10)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_out_of_memory_fails_the_largest_request_of_the_step(
    tiny_llama: Path, oracle: Oracle, error: Exception
) -> None:
    engine = EngineLoop(options(tiny_llama))
    embed = engine.model.module.get_input_embeddings()

    def refuse(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].numel() > 64:
            raise error

    embed.register_forward_pre_hook(refuse)
    sizes = {"small": 20, "largest": 90, "large": 50, "other": 10}
    prompts = {name: [2 + (7 * at + size) % 120 for at in range(size)] for name, size in sizes.items()}
    for name, prompt in prompts.items():
        submit(engine, name, prompt, 6)
    reports = run(engine)
    ended = finishes(reports)
    assert {name for name in sizes if ended[name].finish == "error"} == {"largest", "large"}
    assert "ran out of memory" in str(ended["largest"].error)
    for name in ("small", "other"):
        got = [token for report in reports for d in report.deltas if d.request_id == name for token in d.token_ids]
        oracle.expect(prompts[name], got, 6)
    assert engine.scheduler.pool.held == 0


@pytest.mark.parametrize(
    ("prompt", "words"), [([5, 128], "outside the vocabulary"), ([], "prompt of one token"), ([5] * 512, "at most 511")]
)
def test_a_request_that_can_never_run_fails_with_a_message(tiny_llama: Path, prompt: list[int], words: str) -> None:
    engine = EngineLoop(options(tiny_llama))
    assert submit(engine, "bad", prompt, 4) is None
    assert words in str(finishes(run(engine))["bad"].error)


def test_a_cancelled_request_frees_its_blocks_within_a_step(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    submit(engine, "gone", list(range(2, 60)), 400)
    submit(engine, "stays", [5, 6], 3)
    engine.step()
    engine.cancel(messages.Cancel("gone", "abort"))
    engine.cancel(messages.Cancel("gone", "abort"))
    engine.cancel(messages.Cancel("never was", "stop"))
    report = engine.step()
    assert report is not None
    assert [delta.finish for delta in report.deltas if delta.request_id == "gone"] == ["abort"]
    assert report.blocks_held == 1
    assert finishes(run(engine))["stays"].finish == "length"
    assert engine.scheduler.pool.held == 0


def test_the_end_of_sequence_token_ends_unless_it_is_ignored(tiny_llama: Path, oracle: Oracle) -> None:
    prompt = next(p for a in range(2, 128) if len(oracle.generate(p := [a, a + 1], 60)) < 60)
    engine = EngineLoop(options(tiny_llama))
    submit(engine, "ends", prompt, 60)
    submit(engine, "goes on", prompt, 60, ignore_eos=True)
    texts = finish(engine)
    assert len(texts["ends"]) < 60 == len(texts["goes on"])
    assert texts["goes on"][: len(texts["ends"]) + 1] == [*texts["ends"], 1]


def test_a_sampled_text_does_not_depend_on_batch_chunks_or_preemption(tiny_llama: Path) -> None:
    def text(others: int, **changes: object) -> list[int]:
        engine = EngineLoop(options(tiny_llama, max_model_length=128, **changes))
        for index in range(others):
            submit(engine, f"other{index}", [2 + index] * 20, 60, temperature=1.0, ignore_eos=True)
        submit(engine, "it", list(range(2, 32)), 60, temperature=0.8, top_p=0.9, seed=11, ignore_eos=True)
        texts = finish(engine)
        if others and "kv_size" in changes:
            assert engine.scheduler.preemptions > 0
        return texts["it"]

    alone = text(0)
    assert text(6) == alone
    assert text(6, max_batched_tokens=16) == alone
    assert text(6, kv_size=2 * 2 * 16 * 2 * 16 * 4 * 12) == alone
    assert len(set(alone)) > 10


def test_a_step_report_states_tokens_cache_hits_and_blocks(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    submit(engine, "a", list(range(2, 42)), 3)
    first, second, third = run(engine)
    assert (first.prefill_tokens, first.prefill_context, first.sequences) == (40, 800.0, 0)
    assert (first.prompt_tokens, first.running, first.blocks_held, first.tokens_in_flight) == (40, 1, 3, 41)
    assert (second.prefill_tokens, second.sequences, second.kv_tokens, second.generated_tokens) == (0, 1, 41, 1)
    assert (third.running, third.blocks_held, third.blocks_cached) == (0, 0, 2)
    assert first.seconds > 0 and third.ended_at > first.ended_at
    assert third.blocks_held + third.blocks_cached + third.blocks_free == engine.ready.num_blocks
    assert first.deltas[0].queue_seconds > 0.0 and second.deltas[0].queue_seconds == 0.0


def test_patched_limits_apply_while_serving_and_expire(tiny_llama: Path) -> None:
    clock = Clock()
    engine = EngineLoop(options(tiny_llama, concurrency_max=8), clock=clock, sleep=clock.sleep)
    engine.patch(messages.LimitsPatch(changes={"concurrency_max": 2}, ttl=30.0))
    report = engine.step()
    assert report is not None and report.seconds == 0.0
    assert (report.limits.concurrency, report.limits.ttl) == (2, 30.0)
    for index in range(5):
        submit(engine, str(index), [2 + index, 3], 4)
    assert max(report.running for report in run(engine)) == 2
    clock.sleep(31.0)
    report = engine.step()
    assert report is not None and (report.limits.limits.concurrency_max, report.limits.ttl) == (8, None)


def test_a_draining_engine_rejects_and_a_full_queue_gives_a_retry_time(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, concurrency_max=1, max_queue=1))
    assert submit(engine, "a", [5], 3) is None
    assert submit(engine, "b", [5], 3) is None
    refused = submit(engine, "c", [5], 3)
    assert refused is not None and refused.reason == "queue_full" and refused.retry_after > 0
    engine.drain()
    refused = submit(engine, "d", [5], 3)
    assert refused is not None and refused.reason == "draining"
    assert Counter(delta.finish for delta in finishes(run(engine)).values()) == {"length": 2}


def test_a_paced_step_takes_the_predicted_time(tiny_llama: Path) -> None:
    clock = Clock()
    pace = StepTimeModel(base=0.5, prefill_token=0.01, sequence=0.1)
    engine = EngineLoop(options(tiny_llama, pace=pace), clock=clock, sleep=clock.sleep)
    submit(engine, "a", list(range(2, 12)), 3)
    assert [report.seconds for report in run(engine)] == pytest.approx([0.6, 0.6, 0.6])
    assert engine.ready.paced


def test_a_paced_step_ends_by_its_pace_although_it_was_predicted_to_last_longer(tiny_llama: Path) -> None:
    clock = Clock()
    engine = EngineLoop(options(tiny_llama, pace=StepTimeModel(base=0.5)), clock=clock, sleep=clock.sleep)
    submit(engine, "a", list(range(2, 12)), 9)
    engine.step()
    engine.fit.model = StepTimeModel(base=60.0, steps=1000)
    assert engine.seconds_until_planning == pytest.approx(0.5)
    clock.sleep(0.5)
    assert engine.seconds_until_planning == 0.0
    assert all(report.seconds == pytest.approx(0.5) for report in run(engine) if report.sequences)


def test_the_state_has_block_owners_and_no_tokens(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    submit(engine, "a", [5, 6, 7], 4)
    engine.step()
    state = engine.state()
    requests = state["requests"]
    assert isinstance(requests, list) and len(requests) == 1
    assert (requests[0]["id"], len(requests[0]["blocks"]), requests[0]["state"]) == ("a", 1, "running")
    assert "known" not in str(state)
    run(engine)


class Clock:
    """Time that moves only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
