"""Weights are copied from their files to the device through two small buffers, and equal those that transformers loads."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Glm4MoeConfig,
    GPTNeoXConfig,
    GraniteMoeConfig,
    HrmTextConfig,
    LlamaConfig,
    PhimoeConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from sluice_engine.backend.cuda.device_queue import DeviceQueue, HostQueue
from sluice_engine.backend.cuda.loading.weights import Target, read_module
from sluice_engine.errors import ModelInvalid
from sluice_engine.model import attention
from sluice_engine.model.pretrained import Checkpoint
from tests.engine.backend.cuda.simulated_device import LateQueue
from tests.engine.families import FAMILIES, MIXTURES, SMALL, save

CPU = torch.device("cpu")
PIECE = 1 << 10


def read(
    folder: Path, dtype: torch.dtype = torch.float32, queue: DeviceQueue | None = None, seen: list[Any] | None = None
) -> torch.nn.Module:
    attention.register()
    seen = [] if seen is None else seen
    target = Target(CPU, queue or HostQueue(), lambda done, total: seen.append((done, total)), PIECE)
    return read_module(Checkpoint(folder, AutoConfig.from_pretrained(folder), dtype), target)


def tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def equal(module: torch.nn.Module, folder: Path, dtype: torch.dtype = torch.float32) -> bool:
    got = tensors(module)
    want = tensors(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype))
    same = {name: each.dtype == want[name].dtype and torch.equal(each, want[name]) for name, each in got.items()}
    assert all(same.values()), [name for name, ok in same.items() if not ok]
    return got.keys() == want.keys()


def sharded(config: Any, folder: Path, size: str = "40KB") -> Path:
    save(config, folder)
    module = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    module.save_pretrained(folder, max_shard_size=size)
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", sorted(FAMILIES | MIXTURES))
def test_all_tensors_equal_those_that_transformers_loads(
    family: str, dtype: torch.dtype, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = save((FAMILIES | MIXTURES)[family](), tmp_path)
    assert equal(read(folder, dtype), folder, dtype)
    assert "through host memory" not in caplog.text


NO_GROUPS = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
# Architectures whose files name or merge tensors otherwise than the module, keep some in float32, or cut them.
CONVERTED: dict[str, Callable[[], PreTrainedConfig]] = {
    "renamed": lambda: GPTNeoXConfig(**NO_GROUPS),
    "renamed experts": lambda: GraniteMoeConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2),
    "renamed and merged": lambda: PhimoeConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2),
    "float32 parts": lambda: Glm4MoeConfig(
        **SMALL, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, n_group=1, topk_group=1
    ),
    "cut": lambda: HrmTextConfig(**SMALL),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", sorted(CONVERTED))
def test_tensors_that_transformers_converts_are_converted_on_the_device(
    family: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sharded(CONVERTED[family](), tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(PreTrainedModel, "from_pretrained", classmethod(lambda *_, **__: pytest.fail("host memory")))
        module = read(folder, dtype)
    assert equal(module, folder, dtype)


def test_the_tensors_of_a_model_without_its_head_are_found(tmp_path: Path) -> None:
    folder = save(LlamaConfig(**SMALL, tie_word_embeddings=True), tmp_path)
    AutoModelForCausalLM.from_pretrained(folder).model.save_pretrained(folder)
    AutoConfig.from_pretrained(folder, architectures=["LlamaForCausalLM"]).save_pretrained(folder)
    assert "embed_tokens.weight" in load_file(folder / "model.safetensors")
    assert equal(read(folder), folder)


@pytest.mark.parametrize("change", ["equal", "other", "head alone"])
def test_a_stored_head_is_tied_as_transformers_ties_it(change: str, tmp_path: Path) -> None:
    path = save(LlamaConfig(**SMALL, tie_word_embeddings=True), tmp_path) / "model.safetensors"
    kept = load_file(path)
    embedding = kept["model.embed_tokens.weight"]
    kept["lm_head.weight"] = embedding.clone() if change != "other" else -embedding
    if change == "head alone":
        del kept["model.embed_tokens.weight"]
    save_file(kept, path, metadata={"format": "pt"})
    module = read(tmp_path)
    assert equal(module, tmp_path)
    embeddings = module.get_input_embeddings().weight.data_ptr(), module.get_output_embeddings().weight.data_ptr()
    assert (embeddings[0] == embeddings[1]) == (change != "other")


def test_tensors_that_cannot_be_converted_are_named(tmp_path: Path) -> None:
    path = save(CONVERTED["renamed and merged"](), tmp_path) / "model.safetensors"
    kept = load_file(path)
    name = next(each for each in kept if ".experts.1.w1" in each)
    save_file(kept | {name: torch.zeros(3, 64)}, path, metadata={"format": "pt"})
    with pytest.raises(ModelInvalid, match=r"cannot be converted as PhimoeForCausalLM asks: .*stack"):
        read(tmp_path)


def test_tied_weights_of_several_files_are_one_tensor(tmp_path: Path) -> None:
    folder = sharded(LlamaConfig(**SMALL, tie_word_embeddings=True), tmp_path)
    module = read(folder)
    assert equal(module, folder)
    assert module.get_input_embeddings().weight.data_ptr() == module.get_output_embeddings().weight.data_ptr()


def test_a_buffer_is_not_filled_again_before_its_copy_has_ended(tmp_path: Path) -> None:
    folder = sharded(LlamaConfig(**SMALL), tmp_path)
    queue = LateQueue()  # a copy is executed only when it is waited for
    assert equal(read(folder, torch.bfloat16, queue), folder, torch.bfloat16)
    assert queue.most == 2


def test_the_progress_counts_all_bytes_in_pieces(tmp_path: Path) -> None:
    folder = sharded(LlamaConfig(**SMALL), tmp_path)
    total = sum(each.nbytes for path in folder.glob("*.safetensors") for each in load_file(path).values())
    seen: list[tuple[int, int]] = []
    read(folder, seen=seen)
    done = [each[0] for each in seen]
    assert (done[-1], {each[1] for each in seen}) == (total, {total})
    assert all(0 < after - before <= PIECE for before, after in zip([0, *done], done, strict=False))


def rewritten(folder: Path, tmp_path: Path, **changes: torch.Tensor | None) -> Path:
    """The folder with these tensors replaced, or left out for None."""
    path = save(LlamaConfig(**SMALL), tmp_path) / "model.safetensors"
    kept = load_file(path) | {name.replace("__", "."): each for name, each in changes.items()}
    save_file({name: each for name, each in kept.items() if each is not None}, path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm_head__weight": None, "model__norm__weight": None}, r"lack lm_head.weight, model.norm.weight, which its"),
        ({"model__norm__weight": torch.zeros(63)}, r"norm.weight in .*model.safetensors has the shape \[63\].*\[64\]"),
        ({"model__norm__weight": torch.zeros(64, dtype=torch.complex64)}, r"the dtype 'C64'; known are F64"),
    ],
)
def test_weights_that_contradict_the_config_are_named(
    changes: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelInvalid, match=message):
        read(rewritten(tmp_path, tmp_path, **changes))


def test_tensors_without_use_are_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    more: dict[str, torch.Tensor | None] = {f"model__extra__{index}": torch.zeros(2) for index in range(5)}
    read(rewritten(tmp_path, tmp_path, **more))
    assert "does not use model.extra.0, model.extra.1, model.extra.2 and 2 more tensors" in caplog.text


def test_a_file_that_ends_early_is_named(tmp_path: Path) -> None:
    path = save(LlamaConfig(**SMALL), tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelInvalid, match=r"model.safetensors ends before its last tensor. Download it again"):
        read(tmp_path)


GROWTH = """
import json, sys
sys.path[:0] = json.loads(sys.argv[2])
from pathlib import Path
import torch
from transformers import AutoConfig
from sluice_engine.backend.cuda.device_queue import HostQueue
from sluice_engine.backend.cuda.loading.weights import Target, read_module
from sluice_engine.model import attention
from sluice_engine.model.pretrained import Checkpoint

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))

attention.register()
folder = Path(sys.argv[1])
read_module(Checkpoint(folder / "tiny", AutoConfig.from_pretrained(folder / "tiny"), torch.bfloat16),
            Target(torch.device("cpu"), HostQueue(), lambda *_: None))  # imports and first-use buffers
checkpoint = Checkpoint(folder, AutoConfig.from_pretrained(folder), torch.bfloat16)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins again at what is held now
before = status("VmRSS")
module = read_module(checkpoint, Target(torch.device("cpu"), HostQueue(), lambda *_: None, 4 << 20))
print(json.dumps([status("VmHWM") - before, sum(each.nbytes for each in module.parameters())]))
"""


def beside_the_model(folder: Path, most: int) -> tuple[int, int]:
    """Bytes that a process holds at most beside the model that it loads, and those of the model. The least of three loads
    unless one holds less than `most`: pages of the files that the kernel leaves mapped count too, on a busy machine many.
    """
    beside, model = sys.maxsize, 0
    for _ in range(3):
        command = [sys.executable, "-c", GROWTH, str(folder), json.dumps(sys.path)]
        grown, model = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        beside = min(beside, abs(grown - model))
        if beside < most:
            break
    return beside, model


@pytest.mark.parametrize("kind", [LlamaConfig, GPTNeoXConfig])  # as they are, and renamed
def test_the_host_holds_nothing_but_the_buffers_beside_the_devices_tensors(
    kind: type[PreTrainedConfig], tmp_path: Path
) -> None:
    """The device is this machine's memory, so the growth is the model in bf16 and the buffers. The files are twice as
    large as the model, and a loader that held one of them would grow by its size.
    """
    sizes = NO_GROUPS | {"hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 8192, "num_hidden_layers": 2}
    save(kind(**NO_GROUPS), tmp_path / "tiny")
    AutoModelForCausalLM.from_config(kind(**sizes)).save_pretrained(tmp_path, max_shard_size="70MB")
    files = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    most = 24 << 20
    beside, model = beside_the_model(tmp_path, most)
    assert sum(files) > 2 * model - (1 << 20)
    assert beside < most < min(files), (beside, model)
