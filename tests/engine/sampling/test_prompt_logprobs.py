"""Logprobs of prompts equal transformers' log-softmax, whatever is chunked, cached, preempted, drafted or shared."""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from sluice_engine import SamplingParams, messages
from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.core import startup
from sluice_engine.core.engine import EngineLoop
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling import logprobs
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import options, run

VOCABULARY = 128
TOP = 3
TOLERANCE = 1e-4


class Reference:
    """Plain transformers."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    @torch.inference_mode()
    def expect(self, prompt: list[int], got: list[TokenLogprob], tolerance: float = TOLERANCE) -> None:
        """Fails unless these are the logprobs, ranks and top tokens of the prompt's tokens after the first."""
        table = self._model(torch.tensor([prompt])).logits[0, :-1].float().log_softmax(-1)
        assert len(got) == len(prompt) - 1
        for row, token, each in zip(table, prompt[1:], got, strict=True):
            assert each.logprob == pytest.approx(float(row[token]), abs=tolerance)
            better = int((row > row[token] + tolerance).sum()), int((row >= row[token] - tolerance).sum())
            assert better[0] < each.rank <= better[1]
            values = [float(value) for value in row.topk(len(each.top)).values]
            assert [value for _, value in each.top] == pytest.approx(values, abs=tolerance)
            assert [float(row[token]) for token, _ in each.top] == pytest.approx(values, abs=tolerance)


def scored(
    engine: EngineLoop, prompts: list[list[int]], samples: int = 1, **params: object
) -> list[list[TokenLogprob]]:
    """Logprobs of all prompts, computed at once; with so many samples of each."""
    values: dict[str, object] = {"max_tokens": 20, "temperature": 0.0, "ignore_eos": True, "prompt_logprobs": TOP}
    sampling = SamplingParams(**(values | params))  # type: ignore[arg-type]
    for index, prompt in enumerate(prompts):
        more = tuple((f"{index}-{sample}", sample) for sample in range(1, samples))
        assert engine.submit(messages.Submit(str(index), tuple(prompt), sampling, 0.0, samples=more)) is None
    found: dict[str, list[TokenLogprob]] = {}
    tokens: dict[str, int] = {}
    for delta in (delta for report in run(engine) for delta in report.deltas):
        assert delta.error is None
        found.setdefault(delta.request_id, []).extend(delta.prompt_logprobs)
        assert not (delta.prompt_logprobs and tokens.get(delta.request_id)), "after a token of the output"
        tokens[delta.request_id] = tokens.get(delta.request_id, 0) + len(delta.token_ids)
    assert set(tokens.values()) == {values.get("max_tokens")} and len(tokens) == samples * len(prompts)
    assert all(not given for name, given in found.items() if "-" in name), "each prompt is computed once"
    return [found[str(index)] for index in range(len(prompts))]


def prompts_of(seed: int, count: int, longest: int, shared: int = 0) -> list[list[int]]:
    dice = random.Random(seed)
    start = [dice.randrange(2, VOCABULARY) for _ in range(shared)]
    lengths = [dice.randint(1, longest - shared) for _ in range(count)]
    return [start + [dice.randrange(2, VOCABULARY) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_whole_in_chunks_and_again_from_a_warm_cache(family: str, tmp_path: Path) -> None:
    folder = save(FAMILIES[family](), tmp_path)
    reference, prompts = Reference(folder), prompts_of(3, 5, 90, shared=33)
    for budget in (1000, 17):
        engine = EngineLoop(options(folder, max_batched_tokens=budget))
        for _ in range(2):
            for prompt, got in zip(prompts, scored(engine, prompts), strict=True):
                reference.expect(prompt, got)


def test_a_cached_prompt_is_computed_again_only_for_its_logprobs(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    (prompt,) = prompts_of(1, 1, 100, shared=80)
    cached: list[int] = []
    for number, prompt_logprobs in enumerate((None, 0, None)):
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=prompt_logprobs)
        engine.submit(messages.Submit(str(number), tuple(prompt), params, 0.0))
        cached += [delta.cached_tokens for report in run(engine) for delta in report.deltas if delta.token_ids]
    assert cached == [0, 0, (len(prompt) - 1) // 16 * 16]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 6),
    shared=st.sampled_from([0, 20, 48]),
    budget=st.sampled_from([5, 32, 2048]),
    per_step=st.sampled_from([1, 7, 10_000]),
    blocks=st.sampled_from([8, 11, 40]),
    samples=st.integers(1, 3),
    overlap=st.booleans(),
    speculation=st.sampled_from(["off", "on"]),
    swap=st.sampled_from([0, 1 << 20]),
)
def test_whatever_the_steps_are(
    tiny_llama: Path, reference: Reference, seed: int, count: int, shared: int, budget: int, per_step: int, blocks: int,
    samples: int, overlap: bool, speculation: str, swap: int,
) -> None:  # fmt: skip
    block_bytes = EngineLoop(options(tiny_llama)).model.kv_shape.block_bytes(16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "SCORED_LOGITS_BYTES", 4 * VOCABULARY * per_step)
        engine = EngineLoop(
            options(
                tiny_llama, max_model_length=128, kv_size=blocks * block_bytes, max_batched_tokens=budget,
                overlap=overlap, speculation=speculation, swap_size=swap,
            )
        )  # fmt: skip
    prompts = prompts_of(seed, count, 90, shared)
    for prompt, got in zip(prompts, scored(engine, prompts, samples), strict=True):
        reference.expect(prompt, got)
    assert engine.scheduler.pool.held == 0


@pytest.fixture(scope="module")
def reference(tiny_llama: Path) -> Reference:
    return Reference(tiny_llama)


@pytest.mark.parametrize("swap", [0, 1 << 20])
def test_a_prompt_that_was_preempted_in_its_middle_reports_each_token_once(
    tiny_llama: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch, swap: int
) -> None:
    """Decoding requests grow into the pool while a long prompt is computed two tokens at a time."""
    monkeypatch.setattr(startup, "SCORED_LOGITS_BYTES", 4 * VOCABULARY * 2)
    block_bytes = EngineLoop(options(tiny_llama)).model.kv_shape.block_bytes(16)
    engine = EngineLoop(options(tiny_llama, max_model_length=160, kv_size=block_bytes * 13, swap_size=swap))
    for index in range(3):
        growing = SamplingParams(max_tokens=100, temperature=0.0, ignore_eos=True)
        engine.submit(messages.Submit(f"grows-{index}", (5 + index,) * 4, growing, 0.0))
    (prompt,) = prompts_of(5, 1, 95, shared=85)
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True, prompt_logprobs=TOP)
    engine.submit(messages.Submit("it", tuple(prompt), params, 0.0))
    got: list[TokenLogprob] = []
    preempted_at = None
    while engine.has_work:
        report = engine.step()
        engine.scheduler.check()
        request = engine.scheduler.requests.get("it")
        if request is not None and request.preemptions and preempted_at is None:
            preempted_at = request.scored
        deltas = () if report is None else report.deltas
        got += [each for delta in deltas if delta.request_id == "it" for each in delta.prompt_logprobs]
    assert preempted_at is not None and 0 < preempted_at < len(prompt) - 1
    reference.expect(prompt, got)


def test_the_logits_of_a_step_and_the_table_beside_them_are_bounded(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of logits of one step, and of one log-softmax, for eight prompts that fit into one step."""
    monkeypatch.setattr(startup, "SCORED_LOGITS_BYTES", 4 * VOCABULARY * 50)
    engine = EngineLoop(options(tiny_llama, max_batched_tokens=2048, speculation="off"))
    steps: list[int] = []
    tables: list[int] = []
    score, table = engine.runner._sampler.score_prompts, logprobs.logprobs_of  # type: ignore[union-attr]

    def count_step(logits: torch.Tensor, targets: list[logprobs.PromptTargets]) -> object:
        steps.append(len(logits))
        return score(logits, targets)

    def count_table(logits: torch.Tensor, tokens: torch.Tensor, counts: object) -> list[TokenLogprob]:
        tables.append(len(logits))
        return table(logits, tokens, counts)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.runner._sampler, "score_prompts", count_step)  # type: ignore[union-attr]
    monkeypatch.setattr(logprobs, "logprobs_of", count_table)
    prompts = prompts_of(7, 8, 100, shared=60)
    scored(engine, prompts)
    assert sum(steps) == sum(len(prompt) - 1 for prompt in prompts)
    assert max(steps) == 50 and max(tables) == logprobs.ROWS_AT_ONCE


def test_the_compiled_decoder_gives_them_in_bfloat16(tiny_llama: Path, library: Path, best_level: int) -> None:
    assert library.exists()
    if best_level < native.BF16_LEVEL:
        pytest.skip(f"this processor has no {native.LEVELS[native.BF16_LEVEL]}")
    engine = EngineLoop(options(tiny_llama, dtype="bfloat16"))
    assert isinstance(engine.model.module.forward, NativeDecoder)
    reference, prompts = Reference(tiny_llama, torch.bfloat16), prompts_of(11, 4, 90)
    for prompt, got in zip(prompts, scored(engine, prompts), strict=True):
        reference.expect(prompt, got, tolerance=0.15)
