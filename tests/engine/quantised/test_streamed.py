"""The CUDA backend reads quantised checkpoints layer by layer to the device, where they are dequantised."""

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from sluice_engine.backend.cuda.loading import stored
from sluice_engine.errors import ModelInvalid
from sluice_engine.model import attention
from sluice_engine.model.pretrained import from_folder
from tests.engine.backend.cuda.test_weights import beside_the_model, read, tensors
from tests.engine.families import FAMILIES, SMALL, save
from tests.engine.quantised.damage import LAYER, damaged
from tests.engine.quantised.packer import Format, quantise_folder
from tests.engine.quantised.test_checkpoint import FORMATS

CASES = {(family, "gptq, 4 bits") for family in FAMILIES} | {("llama", name) for name in FORMATS}


def expect_equal(folder: Path, dtype: torch.dtype) -> None:
    """Both loaders give the same tensors."""
    got = tensors(read(folder, dtype))
    want = tensors(from_folder(AutoModelForCausalLM, folder, AutoConfig.from_pretrained(folder), dtype))
    assert got.keys() == want.keys()
    for name, tensor in got.items():
        assert tensor.dtype == want[name].dtype
        assert torch.equal(tensor, want[name]), name


@pytest.mark.parametrize(("family", "name"), sorted(CASES))
def test_all_tensors_equal_those_that_the_cpu_dequantises(
    family: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = quantise_folder(save(FAMILIES[family](), tmp_path / "source"), tmp_path, FORMATS[name])
    attention.register()
    with caplog.at_level(logging.INFO):
        expect_equal(folder, torch.bfloat16)
    assert "through host memory" not in caplog.text


@pytest.mark.parametrize("name", FORMATS)
def test_some_outputs_at_once_give_the_whole_weight(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = quantise_folder(save(FAMILIES["llama"](), tmp_path / "source"), tmp_path, FORMATS[name])
    attention.register()
    monkeypatch.setattr(stored, "AT_ONCE", 1)
    expect_equal(folder, torch.float32)


def test_a_layer_in_several_files_is_one_weight(tmp_path: Path) -> None:
    folder, _ = quantise_folder(
        save(FAMILIES["llama"](), tmp_path / "source"), tmp_path, Format("gptq", 4, shuffled=True)
    )
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = [dict(list(weights.items())[first::2]) for first in range(2)]
    for index, part in enumerate(parts):
        save_file(part, folder / f"model-0000{index + 1}-of-00002.safetensors", {"format": "pt"})
    places = {name: f"model-0000{index + 1}-of-00002.safetensors" for index, part in enumerate(parts) for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    attention.register()
    expect_equal(folder, torch.float32)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no zeros", rf"layer {LAYER} in .* lacks qzeros: the checkpoint is incomplete"),
        ("g_idx", rf"layer {LAYER} in .* has a g_idx outside its 2 groups"),
        ("no layer", rf"lack {LAYER}.weight, which its config.json asks for"),
        ("shape", rf"The tensor {LAYER}.weight in .*safetensors has the shape \[96, 32\]"),
        ("flat", rf"The tensor {LAYER}.weight in .*safetensors has the shape \[\]"),
        ("short", r"model.safetensors ends before its last tensor"),
        ("dense", r"says gptq, and its weights hold no quantised layer"),
    ],
)
def test_a_damaged_checkpoint_names_its_layer(fault: str, words: str, tmp_path: Path) -> None:
    folder = damaged(fault, tmp_path)
    with pytest.raises(ModelInvalid, match=words):
        read(folder)


def packed_model(folder: Path, layers: int, hidden: int, inner: int) -> None:
    """A GPTQ checkpoint of 4 bits, all of whose integers are equal."""
    config = LlamaConfig(
        **SMALL
        | {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "head_dim": hidden // 4}
    )
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in module.state_dict().items():
        if tensor.dim() == 1 or "proj" not in name:
            weights[name] = torch.ones(tensor.shape, dtype=torch.bfloat16)
            continue
        (outputs, inputs), layer = tensor.shape, name.removesuffix(".weight")
        weights[f"{layer}.qweight"] = torch.full((inputs // 8, outputs), 0x11111111, dtype=torch.int32)
        weights[f"{layer}.qzeros"] = torch.zeros(inputs // 128, outputs // 8, dtype=torch.int32)
        weights[f"{layer}.scales"] = torch.ones(inputs // 128, outputs, dtype=torch.float16)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config.quantization_config = Format("gptq", 4, group=128).config()
    config.save_pretrained(folder)


def test_the_host_holds_one_layer_beside_the_devices_tensors(tmp_path: Path) -> None:
    """The device is this machine's memory: the growth is the model in bf16, and what dequantising one layer takes there. A
    loader that held all dense weights beside the module would grow by the model once more.
    """
    save(LlamaConfig(**SMALL), tmp_path / "tiny")
    packed_model(tmp_path, layers=8, hidden=1024, inner=4096)
    largest = 1024 * 4096
    most = 32 * largest
    beside, model = beside_the_model(tmp_path, most)
    assert model > 2 * 16 * 7 * (largest // 4) > 12 * largest
    assert beside < most < model // 2 + (8 << 20), (beside, model)


def test_progress_counts_the_bytes_of_the_files(tmp_path: Path) -> None:
    folder, _ = quantise_folder(save(FAMILIES["llama"](), tmp_path / "source"), tmp_path, Format("awq", 4))
    attention.register()
    seen: list[tuple[int, int]] = []
    read(folder, seen=seen)
    files = load_file(folder / "model.safetensors")
    assert seen[-1] == (sum(each.nbytes for each in files.values()),) * 2


def test_an_empty_tensor_keeps_its_dtype(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.touch()
    read_back = stored.StoredTensor(file, 0, torch.int32, (0, 4), 0).read()
    assert (read_back.dtype, read_back.shape) == (torch.int32, (0, 4))
