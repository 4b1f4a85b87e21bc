"""Sampling inside the engine: a request's tokens do not depend on preemption, prefix hits, chunks or other requests."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from tests.engine.oracle import options, run, submit

BLOCK_BYTES = 2 * 2 * 16 * 2 * 16 * 4
PENALISED = {
    "temperature": 0.9, "seed": 11, "ignore_eos": True, "frequency_penalty": 0.6, "presence_penalty": 0.4,
    "repetition_penalty": 1.3, "logit_bias": {9: 2.0}, "min_p": 0.02, "logprobs": 2,
}  # fmt: skip


def deltas_of(reports: list[messages.StepReport], request_id: str) -> list[messages.Delta]:
    return [delta for report in reports for delta in report.deltas if delta.request_id == request_id]


def text(reports: list[messages.StepReport], request_id: str = "it") -> list[int]:
    return [token for delta in deltas_of(reports, request_id) for token in delta.token_ids]


def test_penalties_survive_preemption_chunks_and_prefix_hits(tiny_llama: Path) -> None:
    prompt = list(range(2, 36))

    def run_it(others: int, warm: bool = False, **changes: object) -> list[int]:
        engine = EngineLoop(options(tiny_llama, max_model_length=128, **changes))
        if warm:
            submit(engine, "before", prompt, 2)
            run(engine)
        for index in range(others):
            submit(engine, f"other{index}", [2 + index] * 20, 60, temperature=1.0, ignore_eos=True)
        submit(engine, "it", prompt, 60, **PENALISED)
        reports = run(engine)
        if "kv_size" in changes:
            assert engine.scheduler.preemptions > 0
        if warm:
            assert deltas_of(reports, "it")[0].cached_tokens == 32  # the runner never saw these tokens of the prompt
        return text(reports)

    alone = run_it(0)
    assert len(alone) == 60
    assert run_it(0, warm=True) == alone
    assert run_it(6, max_batched_tokens=16) == alone
    assert run_it(6, kv_size=BLOCK_BYTES * 12) == alone


def test_penalties_count_as_the_definition_says(tiny_llama: Path) -> None:
    """Greedy, so that the reference is a few lines over transformers' logits."""
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    prompt, known = [5, 6, 7, 8, 5], [5, 6, 7, 8, 5]
    with torch.inference_mode():
        for _ in range(40):
            scores = model(torch.tensor([known])).logits[0, -1]
            for token in set(known):
                scores[token] = scores[token] / 1.2 if scores[token] > 0 else scores[token] * 1.2
            for token in known[len(prompt) :]:
                scores[token] -= 0.5
            for token in set(known[len(prompt) :]):
                scores[token] -= 0.3
            known.append(int(scores.argmax()))
    engine = EngineLoop(options(tiny_llama))
    submit(
        engine, "it", prompt, 40, ignore_eos=True, repetition_penalty=1.2, frequency_penalty=0.5, presence_penalty=0.3
    )
    assert text(run(engine)) == known[len(prompt) :]


def test_logprobs_equal_transformers(tiny_llama: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    engine = EngineLoop(options(tiny_llama))
    prompts = {str(index): list(range(2 + index, 9 + 7 * index)) for index in range(5)}
    for request_id, prompt in prompts.items():
        submit(engine, request_id, prompt, 12, temperature=1.0, seed=4, logprobs=5, ignore_eos=True)
    submit(engine, "none", [5, 6], 12)
    reports = run(engine)
    for request_id, prompt in prompts.items():
        deltas = deltas_of(reports, request_id)
        tokens = text(reports, request_id)
        with torch.inference_mode():
            want = torch.log_softmax(model(torch.tensor([prompt + tokens])).logits[0].float(), dim=-1)
        for at, delta in enumerate(deltas):
            (logprob,) = delta.logprobs
            row = want[len(prompt) + at - 1]
            assert logprob.logprob == pytest.approx(float(row[tokens[at]]), abs=1e-3)
            assert [value for _, value in logprob.top] == pytest.approx(row.topk(5).values.tolist(), abs=1e-3)
    assert all(delta.logprobs == () for delta in deltas_of(reports, "none"))


def test_min_tokens_bars_the_end_and_only_until_then(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama))
    biased = {"logit_bias": {1: 100.0}, "ignore_eos": False}  # the end-of-sequence token wins whenever it may
    submit(engine, "now", [5, 6], 30, **biased)
    submit(engine, "later", [5, 6], 30, min_tokens=7, **biased)
    reports = run(engine)
    assert text(reports, "now") == []
    assert len(text(reports, "later")) == 7
    assert deltas_of(reports, "later")[-1].finish == "stop"
