"""Reads a folder's weights to the device tensor by tensor, into transformers' module: the host never holds the model.

The tensors of experts are copied to their place in a merged tensor (`merged.py`), and quantised layers are dequantised on the
device (`stored.py`). transformers' own loader reads models whose tensors it renames or merges otherwise; the host then holds
the model once.
"""

import copy
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from transformers import AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping

from sluice.models.files import HeaderInvalid, loaded_names
from sluice.models.quantisation import Quantisation, read_quantisation
from sluice_engine.backend.base import OnBytes
from sluice_engine.backend.cuda.device_queue import DeviceQueue
from sluice_engine.backend.cuda.loading.merged import Part, is_known, part_of
from sluice_engine.backend.cuda.loading.staging import PIECE_BYTES, FileEndsEarly, Staging
from sluice_engine.backend.cuda.loading.stored import (
    DTYPES,
    Stored,
    StoredLayer,
    StoredTensor,
    in_file,
    with_layers,
)
from sluice_engine.errors import ModelInvalid, first_line
from sluice_engine.model import attention
from sluice_engine.model.pretrained import Checkpoint, from_folder

Keep = Callable[[str, torch.Tensor], torch.Tensor]  # the part of the tensor of this name that the device holds
_NAMED: Final = 3  # of many names in one sentence
_log = logging.getLogger(__name__)


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
    folder, quantisation = checkpoint.folder, read_quantisation(checkpoint.config.__dict__)
    plain = stored_tensors(folder)
    stored: Mapping[str, Stored] = plain
    if isinstance(quantisation, Quantisation):
        stored = with_layers(plain, quantisation, folder)
    module = without_memory(checkpoint)
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
            found |= in_file(folder / name)
    return found


def cannot_stream(module: torch.nn.Module, stored: Collection[str]) -> str | None:
    """Why transformers must load this model, or None."""
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
    """The module on the meta device, dense also for a quantised checkpoint. Raises ModelInvalid."""
    config = copy.deepcopy(checkpoint.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=checkpoint.dtype, attn_implementation=attention.NAME)
    except Exception as error:  # transformers raises many types; each means that the folder cannot be served
        raise ModelInvalid(f"The model in {checkpoint.folder} cannot be built: {first_line(error)}") from error


def _checked(module: Any, stored: Mapping[str, Stored], folder: Path) -> dict[str, tuple[Stored, Part]]:
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


def _fill(module: Any, stored: dict[str, tuple[Stored, Part]], target: Target) -> None:
    """Give the module its weights, and compute the buffers that no file has."""
    total, done = sum(where.size for where, _ in stored.values()), 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        target.on_bytes(done, total)

    def copy_to(place: torch.Tensor, where: Stored, file: BinaryIO) -> None:
        if isinstance(where, StoredLayer):
            where.copy_to(place)
            count(where.size)
        else:
            file.seek(where.offset)
            staging.copy(file, where.dtype, place)

    empty = module.state_dict()
    staging = Staging(target.queue, count, target.piece)
    merged: dict[str, torch.Tensor] = {}  # those that several tensors of the files fill
    for path in dict.fromkeys(where.path for where, _ in stored.values()):
        with _named_faults(path), path.open("rb", buffering=0) as file:
            for where, part in stored.values():
                if where.path != path:
                    continue
                if part.name in merged:
                    copy_to(part.of(merged[part.name]), where, file)
                    continue
                tensor = torch.empty_like(empty[part.name], device=target.device)
                copy_to(part.of(tensor), where, file)
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
