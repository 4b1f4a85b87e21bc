"""The engine on the CUDA backend, whose kernels are their references here, gives transformers' greedy tokens."""

import logging
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

from sluice_engine.backend.cuda import acceptance
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.core.engine import EngineLoop
from sluice_engine.pulled import pull
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.families import FAMILIES, MIXTURES, SMALL, logits_of, save
from tests.engine.oracle import Oracle, finish, options, submit

FUSED = {"llama", "mistral", "qwen2", "qwen3"}
FUSED_MIXTURES = {"mixtral", "qwen2-moe", "qwen3-moe"}
ALL = FAMILIES | MIXTURES


def on_cuda(folder: Path, **changes: object) -> EngineLoop:
    """An engine on the CUDA backend, with its tensors on the processor."""
    backend = CudaBackend(torch.device("cpu"), FixedMemory())
    return EngineLoop(options(folder, max_num_seqs=8, **changes), backend=backend)


def prompts(count: int, low: int, high: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(2, 128) for _ in range(dice.randint(low, high))] for _ in range(count)]


@pytest.mark.parametrize("family", sorted(ALL))
def test_mixed_and_chunked_steps_give_transformers_tokens(family: str, tmp_path: Path) -> None:
    folder = save(ALL[family](), tmp_path)
    engine, oracle = on_cuda(folder, max_batched_tokens=32), Oracle(folder)
    assert isinstance(engine.model.module.forward, FusedDecoder) == (family in FUSED | FUSED_MIXTURES)
    texts = prompts(5, 1, 60, seed=1)
    for index, prompt in enumerate(texts):
        submit(engine, str(index), prompt, 8)
    got = finish(engine)
    for index, prompt in enumerate(texts):
        oracle.expect(prompt, got.get(str(index), []), 8)


@pytest.mark.parametrize("family", sorted(ALL))
def test_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    folder = save(ALL[family](), tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = [prompts(1, length, length, seed=length)[0] for length in (1, 33, 52)]
    for text, got in zip(texts, logits_of(on_cuda(folder), texts), strict=True):
        with torch.inference_mode():
            want = plain(torch.tensor([text])).logits[0, -1]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_smollm2_gives_transformers_tokens() -> None:
    folder = pull("smollm2")
    engine = on_cuda(folder, dtype="float32", max_model_length=64, kv_size=64 << 20)
    assert isinstance(engine.model.module.forward, FusedDecoder)
    prompt = [504, 3575, 282, 4649, 314]
    submit(engine, "a", prompt, 4)
    got = finish(engine)["a"]
    assert len(got) == 4
    Oracle(folder).expect(prompt, got, 4)


def test_a_model_whose_logits_differ_is_read_again_and_run_by_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save(LlamaConfig(**SMALL), tmp_path)
    want = logits_of(on_cuda(folder), [[5, 6, 7]])
    monkeypatch.setattr(acceptance, "CLOSE", {torch.float32: -1.0})
    engine = on_cuda(folder)
    assert not isinstance(engine.model.module.forward, FusedDecoder)
    assert "the fused decoder gives other logits than this model" in caplog.text
    torch.testing.assert_close(logits_of(engine, [[5, 6, 7]]), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [None, 19])
def test_a_model_with_fewer_positions_than_the_comparison_needs_is_fused(window: int | None, tmp_path: Path) -> None:
    config = MistralConfig(**SMALL | {"max_position_embeddings": 20}, sliding_window=window)
    folder = save(config, tmp_path)
    engine = on_cuda(folder)
    assert isinstance(engine.model.module.forward, FusedDecoder)
    submit(engine, "a", [5, 6, 7], 16)
    Oracle(folder).expect([5, 6, 7], finish(engine)["a"], 16)


def test_sizes_that_the_kernels_do_not_support_are_run_by_modules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 288}
    with caplog.at_level(logging.INFO):
        engine = on_cuda(save(LlamaConfig(**SMALL | sizes), tmp_path))
    assert not isinstance(engine.model.module.forward, FusedDecoder)
    assert "does not have kv_write supports an even head_dim of 2 to 256, not 288" in caplog.text
    submit(engine, "a", [5, 6, 7], 3)
    assert len(finish(engine)["a"]) == 3
