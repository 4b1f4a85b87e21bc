"""Every family of decoder models: logits and greedy text equal plain transformers, however prompts are chunked."""

import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sluice_engine.core.engine import EngineLoop
from sluice_engine.request import TokenLogprob
from tests.engine.families import FAMILIES, logits_of, save
from tests.engine.oracle import Oracle, options, run, submit


def prompts(count: int, low: int, high: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(2, 128) for _ in range(dice.randint(low, high))] for _ in range(count)]


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES[request.param](), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Oracle:
    return Oracle(folder)


@pytest.mark.parametrize("budget", [1000, 17])
def test_logits_are_those_of_transformers_whole_and_in_chunks(folder: Path, budget: int) -> None:
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = [prompts(1, length, length, seed=length)[0] for length in (1, 52, 71, 90)]
    engine = EngineLoop(options(folder, max_batched_tokens=budget))
    computed = []
    for _ in range(2):  # the second time, from the blocks of the first
        engine.last_steps.clear()
        for text, got in zip(texts, logits_of(engine, texts), strict=True):
            with torch.inference_mode():
                want = plain(torch.tensor([text])).logits[0, -1]
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        computed.append(sum(int(str(step["prefill_tokens"])) for step in engine.last_steps))
    assert computed == [sum(map(len, texts)), sum(len(text) - (len(text) - 1) // 16 * 16 for text in texts)]


def test_batched_chunked_and_repeated_prompts_equal_generate(folder: Path, reference: Oracle) -> None:
    engine = EngineLoop(options(folder, max_batched_tokens=32))
    texts = prompts(6, 1, 70, seed=1)
    for turn in range(2):  # the second time, all full blocks are hits
        for index, prompt in enumerate(texts):
            submit(engine, f"{turn}-{index}", prompt, 12)
        reports = run(engine)
        got: dict[str, list[int]] = {}
        for report in reports:
            for delta in report.deltas:
                got.setdefault(delta.request_id, []).extend(delta.token_ids)
        for index, prompt in enumerate(texts):
            reference.expect(prompt, got.get(f"{turn}-{index}", []), 12)
        assert (sum(report.cached_prompt_tokens for report in reports) > 0) == (turn == 1)


def test_preempted_requests_equal_generate(folder: Path, reference: Oracle) -> None:
    shape = EngineLoop(options(folder)).model.kv_shape
    logical = shape.block_bytes(16) * len(shape.groups.windows)
    engine = EngineLoop(options(folder, max_model_length=96, kv_size=logical * 7))
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = prompts(6, 10, 30, seed=2)
    for index, prompt in enumerate(texts):
        submit(engine, str(index), prompt, 40, ignore_eos=True, logprobs=2)
    got: dict[str, list[int]] = {}
    said: dict[str, list[TokenLogprob]] = {}
    for delta in (delta for report in run(engine) for delta in report.deltas):
        got.setdefault(delta.request_id, []).extend(delta.token_ids)
        said.setdefault(delta.request_id, []).extend(delta.logprobs)
    for index, prompt in enumerate(texts):
        told = got[str(index)]
        assert len(told) == 40
        reference.expect(prompt, told[: told.index(1)] if 1 in told else told, 40)
        with torch.inference_mode():
            want = plain(torch.tensor([prompt + told])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        for row, each in zip(want, said[str(index)], strict=True):
            ids, values = zip(*each.top, strict=True)
            torch.testing.assert_close(torch.tensor(values), row[list(ids)], rtol=1e-4, atol=1e-4)
    assert engine.scheduler.preemptions > 0
