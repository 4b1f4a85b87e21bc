"""An engine whose model is shared by ranks gives transformers' greedy tokens, as an engine on one device does."""

from pathlib import Path

import pytest
from transformers import LlamaConfig

from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.errors import InvalidOption, UnsupportedArchitecture
from sluice_engine.pulled import pull
from tests.engine.backend.cuda.test_whole_engine import FUSED, on_cuda, prompts
from tests.engine.backend.parallel.thread_ranks import sharded_engine
from tests.engine.families import FAMILIES, SMALL, save
from tests.engine.oracle import Oracle, finish, submit

MODULES = {"gemma2", "gemma3"}  # transformers' modules run them, sharded by the same plan


@pytest.mark.parametrize("family", sorted(FUSED | MODULES))
def test_two_ranks_give_the_tokens_of_one(family: str, tmp_path: Path) -> None:
    folder, texts = save(FAMILIES[family](), tmp_path), prompts(5, 1, 60, seed=1)
    with sharded_engine(folder, 2, max_batched_tokens=32) as engine:
        assert isinstance(engine.model.module.forward, FusedDecoder) == (family in FUSED)
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


@pytest.mark.parametrize(("family", "missing"), [("phi3", "gate_up_proj, qkv_proj"), ("mixtral", "experts, gate")])
def test_models_without_a_plan_are_refused(family: str, missing: str, tmp_path: Path) -> None:
    folder = save(FAMILIES[family](), tmp_path)
    with pytest.raises(UnsupportedArchitecture, match=f"there is no plan for its {missing}"), sharded_engine(folder, 2):
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
