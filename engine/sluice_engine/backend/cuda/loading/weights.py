"""Reads a folder's weights to the device tensor by tensor, into transformers' module: the host never holds the model.

The tensors of experts are copied to their place in a merged tensor (`merged.py`), and quantised layers are dequantised on the
device (`stored.py`). Where an architecture's files name or merge tensors otherwise, transformers' conversions are applied on
the device (`conversions.py`).
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
from sluice_engine.backend.cuda.loading.conversions import Conversion, places_of
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
from sluice_engine.model.pretrained import Checkpoint

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
    may_lack: Callable[[str], bool] = lambda _: False  # true for a tensor that is zero where the files do not have it


@dataclass(frozen=True, slots=True)
class Needed:
    """What a module needs of its files, by name there: the tensors that are taken as they are and their places, those that
    are converted, and the conversion of each of these.
    """

    parts: dict[str, tuple[Stored, Part]]
    sources: dict[str, Stored]
    conversions: dict[str, Conversion]

    @property
    def size(self) -> int:
        """Bytes in the files."""
        return sum(where.size for where, _ in self.parts.values()) + sum(each.size for each in self.sources.values())

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        taken = [where for where, _ in self.parts.values()]
        return list(dict.fromkeys(where.path for where in (*taken, *self.sources.values())))


def read_module(checkpoint: Checkpoint, target: Target, auto: Any = AutoModelForCausalLM) -> torch.nn.Module:
    """transformers' module of the folder by one of its Auto classes, with its weights on the device. Raises ModelInvalid."""
    folder, quantisation = checkpoint.folder, read_quantisation(checkpoint.config.__dict__)
    plain = stored_tensors(folder)
    stored: Mapping[str, Stored] = plain
    if isinstance(quantisation, Quantisation):
        stored = with_layers(plain, quantisation, folder)
    module = without_memory(checkpoint, auto)
    _keep_dtypes(module, checkpoint.dtype)
    _fill(module, _checked(module, stored, folder, target.may_lack), target)
    return module


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of the folder's safetensors, in the order of the files. Raises ModelInvalid."""
    found: dict[str, StoredTensor] = {}
    for name in loaded_names(path.name for path in folder.iterdir()):
        with _named_faults(folder / name):
            found |= in_file(folder / name)
    return found


def without_memory(checkpoint: Checkpoint, auto: Any = AutoModelForCausalLM) -> Any:
    """The module on the meta device, dense also for a quantised checkpoint. Raises ModelInvalid."""
    config = copy.deepcopy(checkpoint.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    try:
        with torch.device("meta"):
            return auto.from_config(config, dtype=checkpoint.dtype, attn_implementation=attention.NAME)
    except Exception as error:  # transformers raises many types; each means that the folder cannot be served
        raise ModelInvalid(f"The model in {checkpoint.folder} cannot be built: {first_line(error)}") from error


def _keep_dtypes(module: Any, dtype: torch.dtype) -> None:
    """Give the tensors that transformers keeps in another dtype that one."""
    plan = module._get_dtype_plan(dtype)
    for name, tensor in module.state_dict().items() if plan else ():
        for pattern, kept in plan.items():
            if re.search(pattern.replace("*", ".*"), name):
                _place(module, name, tensor.to(kept), computed=True)


def _placed(module: Any, stored: Mapping[str, Stored]) -> tuple[dict[str, Part], tuple[Conversion, ...]]:
    """Where each of the files' tensors belongs, and what is made of those that belong nowhere as they are."""
    prefix, names = f"{module.base_model_prefix}.", module.state_dict()
    is_whole = module.base_model is not module and any(name.startswith(prefix) for name in stored)
    if is_whole and is_known(get_model_conversion_mapping(module, add_legacy=False)):
        return {name: part_of(name, names) for name in stored}, ()
    places = places_of(module, stored)
    return {name: Part(place) for name, place in places.names.items()}, places.conversions


def _checked(module: Any, stored: Mapping[str, Stored], folder: Path, may_lack: Callable[[str], bool]) -> Needed:
    """The files' tensors that the module needs, and their places. Raises ModelInvalid for one of another shape, and for a
    missing one that they may not lack.
    """
    parts, conversions = _placed(module, stored)
    state, shapes = module.state_dict(), {name: where.shape for name, where in stored.items()}
    try:
        made = {name: shape for each in conversions for name, shape in each.shapes(module, shapes).items()}
    except Exception as error:  # of an operation of transformers, on tensors that do not fit it
        raise ModelInvalid(
            f"The weights in {folder} cannot be converted as {type(module).__name__} asks: {first_line(error)}"
        ) from error
    given = {part.name for part in parts.values()} | made.keys()
    expected = {name: tensor for name, tensor in state.items() if name in given or not _is_tied(name, given, module)}
    needed = {name: (stored[name], part) for name, part in parts.items() if _belongs(part, expected)}
    found: Counter[str] = Counter()
    for where, part in needed.values():
        found[part.name] += math.prod(where.shape)
    found.update({name: math.prod(shape) for name, shape in made.items()})
    for name, (where, part) in needed.items():
        _check_shape(f"The tensor {name} in {where.path}", where.shape, part.of(expected[part.name]))
    for name, shape in made.items():
        if name in expected:
            _check_shape(f"The tensor {name}, converted from those in {folder},", shape, expected[name])
    if missing := sorted(
        name
        for name, tensor in expected.items()
        if found[name] < tensor.numel() and (name in found or not may_lack(name))
    ):
        raise ModelInvalid(
            f"The weights in {folder} lack {_listed(missing)}, which its config.json asks for. Download the folder again, "
            f"or correct its config.json."
        )
    sources = {name: each for each in conversions for _, name in each.sources}
    ignored = re.compile("|".join(module._keys_to_ignore_on_load_unexpected or ["$^"]) + r"|rotary_emb\.inv_freq$")
    unused = stored.keys() - needed.keys() - sources.keys()
    if unexpected := sorted(name for name in unused if not ignored.search(name)):
        _log.warning("the model does not use %s of %s", _listed(unexpected), folder)
    return Needed(needed, {name: stored[name] for name in sources}, sources)


def _is_tied(name: str, given: Collection[str], module: Any) -> bool:
    """True for a tensor that is another one of the module, which the files have."""
    ties: dict[str, str] = module.all_tied_weights_keys
    return name in ties or any(source == name and target in given for target, source in ties.items())


def _check_shape(what: str, shape: tuple[int, ...], expected: torch.Tensor) -> None:
    if shape != tuple(expected.shape):
        raise ModelInvalid(
            f"{what} has the shape {list(shape)}, and config.json asks for {list(expected.shape)}. Use the config.json "
            f"that belongs to the weights."
        )


def _belongs(part: Part, expected: dict[str, torch.Tensor]) -> bool:
    tensor = expected.get(part.name)
    return tensor is not None and (part.expert is None or part.expert < len(tensor))


def _fill(module: Any, needed: Needed, target: Target) -> None:
    """Give the module its weights, and compute the buffers that no file has."""
    total, done = needed.size, 0

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

    def place(name: str, tensor: torch.Tensor) -> None:
        _place(module, name, tensor if target.keep is None else target.keep(name, tensor))

    empty = module.state_dict()
    staging = Staging(target.queue, count, target.piece)
    merged: dict[str, torch.Tensor] = {}  # those that several tensors of the files fill
    left = Counter(part.name for _, part in needed.parts.values())
    read: dict[str, torch.Tensor] = {}  # those that are converted
    for path in needed.paths:
        with _named_faults(path), path.open("rb", buffering=0) as file:
            for where, part in needed.parts.values():
                if where.path != path:
                    continue
                tensor = merged.pop(part.name, None)
                if tensor is None:
                    tensor = torch.empty_like(empty[part.name], device=target.device)
                copy_to(part.of(tensor), where, file)
                left[part.name] -= 1
                if left[part.name]:
                    merged[part.name] = tensor
                else:
                    place(part.name, tensor)
            for name, where in needed.sources.items():
                if where.path != path:
                    continue
                conversion = needed.conversions[name]
                read[name] = torch.empty(where.shape, dtype=empty[conversion.target].dtype, device=target.device)
                copy_to(read[name], where, file)
                if all(source in read for _, source in conversion.sources):
                    staging.finish()
                    given = {source: read.pop(source) for _, source in conversion.sources}
                    for made, tensor in conversion.converted(module, given).items():
                        if made in empty:
                            place(made, tensor.contiguous())
    staging.finish()
    for name, buffer in list(module.named_non_persistent_buffers()):
        _place(module, name, torch.empty_like(buffer, device=target.device), computed=True)
    for name, tensor in module.state_dict().items():
        if tensor.is_meta and target.may_lack(name):
            _place(module, name, torch.zeros_like(tensor, device=target.device))
    absent = {name for name, tensor in module.state_dict().items() if tensor.is_meta}
    module.tie_weights(missing_keys=absent, recompute_mapping=False)
    module.initialize_weights()  # computes the buffers only: weights from files are marked as initialised


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
