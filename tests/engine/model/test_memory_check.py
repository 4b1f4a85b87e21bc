"""The need of memory that is computed before the load, against what the loaded engine uses."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.pool_memory import PoolMemory
from sluice_engine.errors import InsufficientMemory, InvalidOption, UnsupportedArchitecture
from sluice_engine.model.kv_cache import blocks_that_fit
from sluice_engine.model.loader import load_model
from sluice_engine.model.memory_check import weight_headers
from sluice_perfmodel.model_memory import Plan, facts_of, need, parameters_of
from tests.engine.families import FAMILIES, SMALL, save
from tests.engine.oracle import options


def _facts_and_need(folder: Path, tokens: int) -> tuple[int, int]:
    config = json.loads((folder / "config.json").read_text())
    parameters = parameters_of(weight_headers(folder), tied=config.get("tie_word_embeddings") is True)
    return parameters, need(facts_of(config, parameters), Plan("float32", max_model_length=tokens, kv_share=1.0)).kv


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_need_is_that_of_the_engine_and_never_above_it(family: str, tmp_path: Path) -> None:
    folder = save(FAMILIES[family](), tmp_path)
    parameters, kv = _facts_and_need(folder, 200)
    assert parameters == AutoModelForCausalLM.from_pretrained(folder).num_parameters()
    model = load_model(options(folder, kv_size=None), CpuBackend())
    groups = model.kv_shape.groups
    held = sum(-(-min(200, window or 200) // 16) for window in groups.windows) * model.kv_shape.block_bytes(16)
    assert kv <= held
    if set(groups.windows) == {None}:
        assert kv == held


def test_the_tiny_models_need_is_the_size_of_its_tensors_and_its_smallest_pool(tiny_llama: Path) -> None:
    parameters, kv = _facts_and_need(tiny_llama, 512)
    model = load_model(options(tiny_llama), CpuBackend())
    assert parameters == AutoModelForCausalLM.from_pretrained(tiny_llama).num_parameters()
    exact = PoolMemory(kv, "here", "more", most=1 << 40)
    size = options(tiny_llama, kv_size=None, kv_memory_fraction=1.0)
    assert blocks_that_fit(size, model.kv_shape, 512, exact) == 32
    with pytest.raises(InsufficientMemory):
        blocks_that_fit(size, model.kv_shape, 512, PoolMemory(kv - 1, "here", "more", most=1 << 40))


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(LlamaConfig(**SMALL), tmp_path, torch.float32)
    monkeypatch.setattr("sluice_engine.backend.pool_memory.memory_left", lambda: (64 << 20) + (1 << 18))
    monkeypatch.setattr(
        "sluice_engine.backend.cpu.backend.from_folder", lambda *_: pytest.fail("the weights were read")
    )
    with pytest.raises(InsufficientMemory) as caught:
        load_model(options(folder, kv_size=None), CpuBackend())
    text = str(caught.value)
    assert text.startswith("The model needs at least ") and "MiB of weights in float32" in text
    assert "The free memory is 0.25 MiB. Give the engine at least 0.1 GiB" in text


def test_a_given_size_of_the_cache_is_judged_before_the_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(LlamaConfig(**SMALL), tmp_path, torch.float32)
    monkeypatch.setattr(
        "sluice_engine.backend.cpu.backend.from_folder", lambda *_: pytest.fail("the weights were read")
    )
    with pytest.raises(
        InsufficientMemory, match=r"--kv-size gives 5 B\. Raise it to --kv-size 192Ki, or leave it out\.$"
    ):
        load_model(options(folder, kv_size=5), CpuBackend())
    with pytest.raises(InsufficientMemory, match=r"--kv-size asks for 1024 TiB, and .* Give a smaller --kv-size"):
        load_model(options(folder, kv_size=1 << 50), CpuBackend())


def test_a_length_beyond_the_models_positions_is_named_before_its_memory(tmp_path: Path) -> None:
    folder = save(LlamaConfig(**SMALL), tmp_path, torch.float32)
    with pytest.raises(InvalidOption, match="exceeds the 256 positions that the model has; give at most 256"):
        load_model(options(folder, kv_size=None, max_model_length=10**8), CpuBackend())


def test_a_quantised_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    folder = save(LlamaConfig(**SMALL), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(
        UnsupportedArchitecture, match=r"is quantised \(fp8\), and that method is not served\. Served are GPTQ and AWQ"
    ):
        load_model(options(folder), CpuBackend())
