"""An engine whose model is shared by ranks gives transformers' greedy tokens, as an engine on one device does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import GPTNeoXConfig, LlamaConfig, Phi3Config, PreTrainedConfig

from sluice_engine.backend.cuda import acceptance
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.modules import KernelExperts
from sluice_engine.errors import InvalidOption, UnsupportedArchitecture
from sluice_engine.pulled import pull
from tests.engine.backend.cuda.test_whole_engine import ALL, FUSED, FUSED_MIXTURES, on_cuda, prompts
from tests.engine.backend.parallel.thread_ranks import sharded_engine
from tests.engine.families import SMALL, save
from tests.engine.oracle import Oracle, finish, submit

MODULES = {"gemma2", "gemma3", "phi3"}  # transformers' modules run them, sharded by the same plan


@pytest.mark.parametrize("family", sorted(FUSED | FUSED_MIXTURES | MODULES))
def test_two_ranks_give_the_tokens_of_one(family: str, tmp_path: Path) -> None:
    folder, texts = save(ALL[family](), tmp_path), prompts(5, 1, 60, seed=1)
    with sharded_engine(folder, 2, max_batched_tokens=32) as engine:
        assert isinstance(engine.model.module.forward, FusedDecoder) == (family in FUSED | FUSED_MIXTURES)
        for index, prompt in enumerate(texts):
            submit(engine, str(index), prompt, 8)
        got = finish(engine)
    oracle, single = Oracle(folder), on_cuda(folder, max_batched_tokens=32)
    for index, prompt in enumerate(texts):
        submit(single, str(index), prompt, 8)
    want = finish(single)
    for index, prompt in enumerate(texts):
        oracle.expect(prompt, got.get(str(index), []), 8)
    assert got == want


def test_smollm2_on_three_ranks_gives_transformers_tokens() -> None:
    folder, prompt = pull("smollm2"), [504, 3575, 282, 4649, 314]
    with sharded_engine(folder, 3, dtype="float32", max_model_length=64, kv_size=64 << 20) as engine:
        assert isinstance(engine.model.module.forward, FusedDecoder)
        submit(engine, "a", prompt, 4)
        got = finish(engine)["a"]
    assert len(got) == 4
    Oracle(folder).expect(prompt, got, 4)


def test_ranks_that_do_not_divide_the_heads_of_smollm2_are_refused() -> None:
    with (
        pytest.raises(InvalidOption, match=r"Its 9 attention heads cannot be divided by 2; .* must be one of 1, 3\."),
        sharded_engine(pull("smollm2"), 2),
    ):
        pass


def test_a_merged_projection_is_shared_by_more_ranks_than_it_has_key_value_heads(tmp_path: Path) -> None:
    folder = save(Phi3Config(**SMALL | {"vocab_size": 131}, sliding_window=40), tmp_path)
    with sharded_engine(folder, 4) as engine:
        assert engine.model.kv_shape.kv_heads == 1
        submit(engine, "a", [5, 6, 7, 8], 12)
        got = finish(engine)
    Oracle(folder).expect([5, 6, 7, 8], got["a"], 12)


def test_a_mixture_of_experts_that_modules_run_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(ALL["mixtral"](), tmp_path)
    monkeypatch.setattr(acceptance, "recognise", lambda *_: None)
    with sharded_engine(folder, 2) as engine:
        assert any(isinstance(child, KernelExperts) for child in engine.model.module.modules())
        submit(engine, "a", [5, 6, 7, 8], 8)
        got = finish(engine)
    Oracle(folder).expect([5, 6, 7, 8], got["a"], 8)


UNPLANNED: dict[str, tuple[Callable[[], PreTrainedConfig], str]] = {
    "a merged projection of another order": (
        lambda: GPTNeoXConfig(**{name: value for name, value in SMALL.items() if name != "num_key_value_heads"}),
        "there is no plan for its dense, dense_4h_to_h, dense_h_to_4h",
    ),
    "a norm of all heads together": (ALL["olmoe"], "there is no plan for its k_norm, q_norm"),
}


@pytest.mark.parametrize("case", sorted(UNPLANNED))
def test_models_without_a_plan_are_refused(case: str, tmp_path: Path) -> None:
    config, sentence = UNPLANNED[case]
    folder = save(config(), tmp_path)
    with pytest.raises(UnsupportedArchitecture, match=sentence), sharded_engine(folder, 2):
        pass


@pytest.mark.parametrize("width", ["moe_intermediate_size", "shared_expert_intermediate_size"])
def test_experts_whose_width_the_ranks_do_not_divide_are_refused(width: str, tmp_path: Path) -> None:
    config = ALL["qwen2-moe"]()
    setattr(config, width, 41)
    folder = save(config, tmp_path)
    sentence = r"width of its experts, 41, cannot be divided by 2"
    with pytest.raises(InvalidOption, match=sentence), sharded_engine(folder, 2):
        pass


def test_ranks_above_the_key_value_heads_hold_copies_and_an_odd_vocabulary_is_padded(tmp_path: Path) -> None:
    folder = save(LlamaConfig(**SMALL | {"vocab_size": 131, "attention_bias": True}), tmp_path)
    with sharded_engine(folder, 4, speculation="on") as engine:
        assert engine.model.kv_shape.kv_heads == 1
        assert engine.model.vocab_size == 131
        submit(engine, "greedy", [5, 6, 7, 5, 6, 7, 5, 6], 12)
        submit(engine, "random", [9, 8], 12, temperature=1.0, top_p=0.9, seed=3)
        submit(engine, "logprobs", [9, 8, 3], 6, logprobs=2, repetition_penalty=1.2)
        got = finish(engine)
    single = on_cuda(folder)
    submit(single, "greedy", [5, 6, 7, 5, 6, 7, 5, 6], 12)
    submit(single, "random", [9, 8], 12, temperature=1.0, top_p=0.9, seed=3)
    submit(single, "logprobs", [9, 8, 3], 6, logprobs=2, repetition_penalty=1.2)
    assert got == finish(single)
