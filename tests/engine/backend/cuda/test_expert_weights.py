"""Tensors of experts in a checkpoint: each is needed once, with the shape that the config asks for."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sluice_engine.errors import ModelInvalid
from tests.engine.backend.cuda.test_weights import read
from tests.engine.families import FAMILIES, save


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.layers.1.mlp.experts.2.up_proj.weight", None, r"lack model.layers.1.mlp.experts.gate_up_proj, which"),
        ("model.layers.0.mlp.experts.3.down_proj.weight", None, r"lack model.layers.0.mlp.experts.down_proj, which"),
        (
            "model.layers.0.mlp.experts.1.gate_proj.weight",
            torch.zeros(47, 64),
            r"experts.1.gate_proj.weight in .* has the shape \[47, 64\], and config.json asks for \[48, 64\]",
        ),
    ],
)
def test_a_missing_or_wrong_tensor_of_an_expert_is_named(
    name: str, tensor: torch.Tensor | None, message: str, tmp_path: Path
) -> None:
    path = save(FAMILIES["qwen3-moe"](), tmp_path) / "model.safetensors"
    kept = load_file(path) | {name: tensor}
    save_file({key: each for key, each in kept.items() if each is not None}, path)
    with pytest.raises(ModelInvalid, match=message):
        read(tmp_path)


def test_tensors_of_more_experts_than_the_config_has_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(FAMILIES["qwen3-moe"](), tmp_path) / "model.safetensors"
    name = "model.layers.0.mlp.experts.4.down_proj.weight"
    save_file(load_file(path) | {name: torch.zeros(64, 48)}, path)
    read(tmp_path)
    assert f"the model does not use {name}" in caplog.text
