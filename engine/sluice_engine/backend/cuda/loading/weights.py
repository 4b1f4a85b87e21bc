"""Reads a folder's weights to the device tensor by tensor, into transformers' module: the host never holds the model.

The tensors of experts are copied to their place in a merged tensor (`merged.py`). transformers' own loader reads models whose
tensors it renames or merges otherwise, and quantised ones are dequantised first; the host then holds the model once.
"""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping

from sluice.models.files import LENGTH_BYTES, HeaderInvalid, header_length, loaded_names, parse_header
from sluice_engine.backend.base import OnBytes
from sluice_engine.backend.cuda.device_queue import DeviceQueue
from sluice_engine.backend.cuda.loading.merged import Part, is_known, part_of
from sluice_engine.backend.cuda.loading.staging import PIECE_BYTES, FileEndsEarly, Staging
from sluice_engine.errors import ModelInvalid, first_line
from sluice_engine.model import attention
from sluice_engine.model.pretrained import Checkpoint, from_folder
from sluice_engine.model.quantised.checkpoint import WORDS

DTYPES: Final = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
Keep = Callable[[str, torch.Tensor], torch.Tensor]  # the part of the tensor of this name that the device holds
_NAMED: Final = 3  # of many names in one sentence
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in its file."""

    path: Path
    offset: int  # from the beginning of the file
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where weights go, and what gets the progress."""

    device: torch.device
    queue: DeviceQueue
    on_bytes: OnBytes
    piece: int = PIECE_BYTES  # bytes of a staging buffer
    keep: Keep | None = None  # None: whole tensors


def read_module(checkpoint: Checkpoint, target: Target) -> torch.nn.Module:
    """transformers' module of the folder with its weights on the device. Raises ModelInvalid."""
    folder = checkpoint.folder
    module = without_memory(checkpoint)
    stored = stored_tensors(folder)
    reason = cannot_stream(module, stored)
    if reason is not None:
        _log.info("transformers loads the weights through host memory: %s", reason)
        whole: torch.nn.Module = from_folder(AutoModelForCausalLM, folder, checkpoint.config, checkpoint.dtype)
        _keep_parts(whole, target)
        return whole.to(target.device)
    _fill(module, _checked(module, stored, folder), target)
    return module


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of the folder's safetensors, in the order of the files. Raises ModelInvalid."""
    found: dict[str, StoredTensor] = {}
    for name in loaded_names(path.name for path in folder.iterdir()):
        with _named_faults(folder / name):
            found |= _in_file(folder / name)
    return found


def cannot_stream(module: torch.nn.Module, stored: Collection[str]) -> str | None:
    """Why transformers must load this model, or None."""
    if any(name.endswith(f".{WORDS}") for name in stored):
        return "they are dequantised first"
    if not is_known(get_model_conversion_mapping(module, add_legacy=False)):
        return "it renames or merges tensors of this architecture"
    if module._keep_in_fp32_modules or module._keep_in_fp32_modules_strict:
        return "some tensors keep another dtype"
    if any(name in stored for name in module.all_tied_weights_keys):
        return "the files hold tensors that the config ties to others"
    prefix = f"{module.base_model_prefix}."
    if not any(name.startswith(prefix) for name in stored):
        return f"the tensors lack the prefix {prefix!r}"
    return None


def without_memory(checkpoint: Checkpoint) -> Any:
    """The module on the meta device. Raises ModelInvalid."""
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(
                checkpoint.config, dtype=checkpoint.dtype, attn_implementation=attention.NAME
            )
    except Exception as error:  # transformers raises many types; each means that the folder cannot be served
        raise ModelInvalid(f"The model in {checkpoint.folder} cannot be built: {first_line(error)}") from error


def _checked(module: Any, stored: dict[str, StoredTensor], folder: Path) -> dict[str, tuple[StoredTensor, Part]]:
    """The files' tensors that the module needs, and their places. Raises ModelInvalid for a missing one or one of another
    shape.
    """
    expected = {
        name: tensor for name, tensor in module.state_dict().items() if name not in module.all_tied_weights_keys
    }
    placed = {name: (where, part_of(name, expected)) for name, where in stored.items()}
    needed = {name: each for name, each in placed.items() if _belongs(each[1], expected)}
    found: Counter[str] = Counter()
    for where, part in needed.values():
        found[part.name] += math.prod(where.shape)
    for name, (where, part) in needed.items():
        shape = tuple(part.of(expected[part.name]).shape)
        if where.shape != shape:
            raise ModelInvalid(
                f"The tensor {name} in {where.path} has the shape {list(where.shape)}, and config.json asks "
                f"for {list(shape)}. Use the config.json that belongs to the weights."
            )
    if missing := sorted(
        name for name, tensor in expected.items() if name not in found or found[name] < tensor.numel()
    ):
        raise ModelInvalid(
            f"The weights in {folder} lack {_listed(missing)}, which its config.json asks for. Download the folder again, "
            f"or correct its config.json."
        )
    ignored = re.compile("|".join(module._keys_to_ignore_on_load_unexpected or ["$^"]) + r"|rotary_emb\.inv_freq$")
    if unexpected := sorted(name for name in stored.keys() - needed.keys() if not ignored.search(name)):
        _log.warning("the model does not use %s of %s", _listed(unexpected), folder)
    return needed


def _belongs(part: Part, expected: dict[str, torch.Tensor]) -> bool:
    tensor = expected.get(part.name)
    return tensor is not None and (part.expert is None or part.expert < len(tensor))


def _fill(module: Any, stored: dict[str, tuple[StoredTensor, Part]], target: Target) -> None:
    """Give the module its weights, and compute the buffers that no file has."""
    total, done = sum(where.size for where, _ in stored.values()), 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        target.on_bytes(done, total)

    empty = module.state_dict()
    staging = Staging(target.queue, count, target.piece)
    merged: dict[str, torch.Tensor] = {}  # those that several tensors of the files fill
    for path in dict.fromkeys(where.path for where, _ in stored.values()):
        with _named_faults(path), path.open("rb", buffering=0) as file:
            for where, part in stored.values():
                if where.path != path:
                    continue
                file.seek(where.offset)
                if part.name in merged:
                    staging.copy(file, where.dtype, part.of(merged[part.name]))
                    continue
                tensor = torch.empty_like(empty[part.name], device=target.device)
                staging.copy(file, where.dtype, part.of(tensor))
                if part.expert is not None:
                    merged[part.name] = tensor
                _place(module, part.name, tensor if target.keep is None else target.keep(part.name, tensor))
    staging.finish()
    for name, buffer in list(module.named_non_persistent_buffers()):
        _place(module, name, torch.empty_like(buffer, device=target.device), computed=True)
    module.tie_weights()
    module.initialize_weights()  # computes the buffers only: weights from files are marked as initialised


def _keep_parts(module: Any, target: Target) -> None:
    """Replace the parameters of a whole module by the parts that the device holds."""
    if target.keep is None:
        return
    for name, weight in list(module.named_parameters(remove_duplicate=False)):
        _place(module, name, target.keep(name, weight.detach()))
    module.tie_weights()


def _place(module: Any, name: str, tensor: torch.Tensor, *, computed: bool = False) -> None:
    """Replace the parameter or buffer of this name. `computed`: transformers still has to compute its content."""
    owner, _, leaf = name.rpartition(".")
    parent = module.get_submodule(owner)
    if leaf in parent._parameters:
        tensor = torch.nn.Parameter(tensor, requires_grad=False)
    if not computed:
        tensor._is_hf_initialized = True
    setattr(parent, leaf, tensor)


def _in_file(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file. Raises HeaderInvalid, KeyError for an unknown dtype, OSError."""
    with path.open("rb") as file:
        length = header_length(file.read(LENGTH_BYTES))
        header = parse_header(file.read(length))
    found: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise HeaderInvalid(f"tensor {name} has {end - begin} bytes for the shape {list(shape)}")
        found[name] = StoredTensor(path, LENGTH_BYTES + length + begin, dtype, shape, end - begin)
    return found


@contextmanager
def _named_faults(path: Path) -> Iterator[None]:
    """Raises ModelInvalid with the file's name for a file that cannot be read."""
    try:
        yield
    except FileEndsEarly as error:
        raise ModelInvalid(f"{path} ends before its last tensor. Download it again.") from error
    except KeyError as error:
        raise ModelInvalid(f"{path} has tensors of the dtype {error}; known are {', '.join(DTYPES)}.") from error
    except (OSError, HeaderInvalid) as error:
        raise ModelInvalid(f"{path} cannot be read as safetensors: {error}. Download it again.") from error


def _listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more tensors" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
