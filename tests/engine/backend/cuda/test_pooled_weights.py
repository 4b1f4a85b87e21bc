"""Weights of models that embed or score are copied tensor by tensor too, and equal those that transformers loads."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from sluice_engine.backend.base import Backend
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.errors import ModelInvalid
from sluice_engine.model import attention
from sluice_engine.model.pooling.task import Task
from sluice_engine.model.pretrained import Checkpoint
from tests.engine.families import FAMILIES, save
from tests.engine.texts import CONFIGS, save_texts_model

CPU = torch.device("cpu")


def read(backend: Backend, folder: Path, task: Task) -> PreTrainedModel:
    attention.register()
    checkpoint = Checkpoint(folder, AutoConfig.from_pretrained(folder), torch.float32)
    return backend.read_pooled(checkpoint, task, lambda *_: None)


def assert_equal(folder: Path, task: Task, lacking: str = "\0") -> None:
    """The tensors of both backends, those with `lacking` in their names aside, which transformers draws at random."""
    got, want = (read(backend, folder, task) for backend in (CudaBackend(CPU), CpuBackend()))
    assert type(got) is type(want)
    names = [name for name in want.state_dict() if lacking not in name]
    assert names
    for name in names:
        assert torch.equal(got.state_dict()[name], want.state_dict()[name]), name
    assert not any(tensor.is_meta for tensor in (*got.parameters(), *got.buffers()))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_all_tensors_equal_those_that_transformers_loads(name: str, tmp_path: Path) -> None:
    assert_equal(save_texts_model(name, tmp_path), "score" if name.endswith("-score") else "embed")


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_generating_checkpoint_is_read_to_embed(family: str, tmp_path: Path) -> None:
    folder = save(FAMILIES[family](), tmp_path)
    assert any(name.startswith("model.") for name in load_file(folder / "model.safetensors"))
    assert_equal(folder, "embed")
    assert (
        AutoModelForCausalLM.from_pretrained(folder).base_model.state_dict().keys()
        == read(CudaBackend(CPU), folder, "embed").state_dict().keys()
    )


def test_a_checkpoint_of_pre_training_without_a_pooler_is_read_to_embed(tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_config(CONFIGS["bert"]()).save_pretrained(tmp_path)
    assert not any("pooler" in name for name in load_file(tmp_path / "model.safetensors"))
    assert_equal(tmp_path, "embed", lacking="pooler.")


def test_a_lacking_tensor_is_refused_with_its_name(tmp_path: Path) -> None:
    folder = save_texts_model("bert-score", tmp_path)
    file = folder / "model.safetensors"
    save_file({name: each for name, each in load_file(file).items() if "classifier" not in name}, file)
    with pytest.raises(ModelInvalid, match=r"lack .*classifier"):
        read(CudaBackend(CPU), folder, "score")
