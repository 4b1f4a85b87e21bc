"""Quantised checkpoints are served: their greedy tokens are those of the weights that they stand for."""

import json
import random
from pathlib import Path

import pytest
import torch

from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.core.engine import EngineLoop
from sluice_engine.errors import ModelInvalid, UnsupportedArchitecture
from sluice_engine.model.loader import load_model
from sluice_engine.model.memory_check import weight_headers
from sluice_perfmodel.model_memory import parameters_of
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import Oracle, finish, options, submit
from tests.engine.quantised.damage import LAYER, damaged
from tests.engine.quantised.packer import Format, quantise_folder

FORMATS = {
    "gptq, 4 bits": Format("gptq", 4),
    "gptq, 8 bits": Format("gptq", 8),
    "gptq, one group": Format("gptq", 4, group=-1),
    "gptq v2": Format("gptq", 4, v2=True),
    "gptq, activation order": Format("gptq", 4, shuffled=True),
    "awq, 4 bits": Format("awq", 4),
    "awq, 8 bits": Format("awq", 8),
}


def expect_equal_tokens(engine: EngineLoop, dense: Path) -> None:
    dice, oracle = random.Random(3), Oracle(dense)
    prompts = [[dice.randrange(2, 128) for _ in range(length)] for length in (1, 17, 40)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 12)
    got = finish(engine)
    for index, prompt in enumerate(prompts):
        oracle.expect(prompt, got.get(str(index), []), 12)


@pytest.mark.parametrize("name", FORMATS)
def test_greedy_tokens_are_those_of_the_dequantised_model(name: str, tmp_path: Path) -> None:
    folder, dense = quantise_folder(save(FAMILIES["llama"](), tmp_path / "source"), tmp_path, FORMATS[name])
    expect_equal_tokens(EngineLoop(options(folder)), dense)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_is_served_quantised(family: str, tmp_path: Path) -> None:
    folder, dense = quantise_folder(save(FAMILIES[family](), tmp_path / "source"), tmp_path, Format("gptq", 4))
    expect_equal_tokens(EngineLoop(options(folder)), dense)


def test_the_cuda_backend_loads_them_too(tmp_path: Path) -> None:
    folder, dense = quantise_folder(save(FAMILIES["llama"](), tmp_path / "source"), tmp_path, Format("awq", 4))
    backend = CudaBackend(torch.device("cpu"), FixedMemory())
    expect_equal_tokens(EngineLoop(options(folder), backend=backend), dense)


@pytest.mark.parametrize("name", ["gptq, 4 bits", "awq, 4 bits", "gptq, 8 bits"])
def test_the_memory_that_is_asked_for_is_that_of_the_dense_weights(name: str, tmp_path: Path) -> None:
    folder, dense = quantise_folder(save(FAMILIES["llama"](), tmp_path / "source"), tmp_path, FORMATS[name])
    assert parameters_of(weight_headers(folder), tied=False) == parameters_of(weight_headers(dense), tied=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quant_method": "fp8"}, r"is quantised \(fp8\), and that method is not served\. Served are GPTQ and AWQ"),
        ({"quant_method": "bitsandbytes"}, r"is quantised \(bitsandbytes\), and that method"),
        (
            {"bits": 3},
            r"is quantised \(gptq\) with bits 3\. Served are GPTQ and AWQ \(gemm\) checkpoints of 4 and 8 bits",
        ),
        ({"group_size": 0}, r"with group_size 0, which is neither"),
        ({"group_size": True}, r"with group_size True"),
        ({"checkpoint_format": "marlin"}, r"is quantised \(gptq\) in the format marlin\."),
        ({"checkpoint_format": ["x"]}, r"in the format \['x'\]"),
        ({"dynamic": {"-:x": {}}}, r"with settings per layer"),
        ({"pack_dtype": "int16"}, r"with words of int16"),
        ({"quant_method": "awq", "version": "gemv"}, r"is quantised \(awq\) in the version gemv"),
        ({"quant_method": "awq", "bits": None}, r"is quantised \(awq\) with bits None"),
    ],
)
def test_what_is_not_served_is_named_with_what_is(change: dict[str, object], words: str, tmp_path: Path) -> None:
    folder = save(FAMILIES["llama"](), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    quantization = Format("gptq", 4).config() | change
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    with pytest.raises(UnsupportedArchitecture, match=words):
        load_model(options(folder), CpuBackend())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no zeros", rf"layer {LAYER} in .* lacks qzeros: the checkpoint is incomplete"),
        ("scales", rf"layer {LAYER} in .* has scales of shape \[1, 96\], and 4 bits in groups of 32 need \[2, 96\]"),
        ("g_idx", rf"layer {LAYER} in .* has a g_idx outside its 2 groups"),
        ("floats", rf"layer {LAYER} in .* is no matrix of int32 words"),
        ("no layer", r"lack 1 that LlamaForCausalLM needs, or have them in another shape \(model.layers.1.mlp.up_proj"),
        ("dense", r"says gptq, and its weights hold no quantised layer"),
    ],
)
def test_a_damaged_checkpoint_names_its_layer(fault: str, words: str, tmp_path: Path) -> None:
    folder = damaged(fault, tmp_path)
    with pytest.raises(ModelInvalid, match=words):
        load_model(options(folder), CpuBackend())
