"""A quantised checkpoint as dense weights, layer by layer, so that beside them one layer is held in float32."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open

from sluice.models.files import loaded_names
from sluice.models.quantisation import WORD_BITS, Quantisation
from sluice_engine.errors import ModelInvalid
from sluice_engine.model.quantised.unpack import Unpacked, unpack_awq, unpack_gptq

WORDS: Final = "qweight"
PARTS: Final = ("qweight", "qzeros", "scales", "g_idx")


def dense_weights(folder: Path, quantisation: Quantisation, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """All weights of the folder by name, floating-point ones in `dtype`. Raises ModelInvalid for a layer whose tensors do
    not fit each other.
    """
    with ExitStack() as stack:
        files = [
            stack.enter_context(safe_open(folder / name, framework="pt"))
            for name in loaded_names(path.name for path in folder.iterdir())
        ]
        where = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - a file is no mapping
        return dict(_weights(folder, where, quantisation, dtype))


def _weights(
    folder: Path, where: Mapping[str, Any], quantisation: Quantisation, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    layers = {name.removesuffix(f".{WORDS}") for name in where if name.endswith(f".{WORDS}")}
    check_layers(layers, quantisation, folder)
    for layer in sorted(layers):
        tensors = {part: where[name].get_tensor(name) for part in PARTS if (name := f"{layer}.{part}") in where}
        unpacked = unpack_layer(f"{layer} in {folder}", tensors, quantisation)
        yield f"{layer}.weight", unpacked.dequantised().to(dtype)
    for name, file in where.items():
        layer, _, part = name.rpartition(".")
        if layer in layers and part in PARTS:
            continue
        tensor = file.get_tensor(name)
        yield name, tensor.to(dtype) if tensor.is_floating_point() else tensor


def check_layers(layers: Collection[str], quantisation: Quantisation, folder: Path) -> None:
    """Raises ModelInvalid for a folder without quantised layers."""
    if not layers:
        raise ModelInvalid(
            f"config.json of {folder} says {quantisation.method}, and its weights hold no quantised layer (*.{WORDS}). "
            f"Remove quantization_config if the weights are dense."
        )


def unpack_layer(name: str, tensors: Mapping[str, torch.Tensor], quantisation: Quantisation) -> Unpacked:
    """The integers of one layer; `name` is for the message. Raises ModelInvalid."""
    group_of = check_layer(name, tensors, quantisation)
    words, scales, bits = tensors[WORDS], tensors["scales"], quantisation.bits
    if quantisation.method == "gptq":
        values, zeros = unpack_gptq(words, tensors["qzeros"], bits, quantisation.zero_offset)
    else:
        values, zeros = unpack_awq(words, tensors["qzeros"], bits)
    return Unpacked(values, scales, zeros[:, : scales.shape[1]], group_of)


def check_layer(name: str, tensors: Mapping[str, torch.Tensor], quantisation: Quantisation) -> torch.Tensor:
    """The group of each input: [inner] int64. Raises ModelInvalid for tensors that do not fit each other."""
    missing = [part for part in ("qzeros", "scales") if part not in tensors]
    if missing:
        raise ModelInvalid(f"The quantised layer {name} lacks {' and '.join(missing)}: the checkpoint is incomplete.")
    words, scales = tensors[WORDS], tensors["scales"]
    if words.dim() != 2 or scales.dim() != 2 or words.dtype != torch.int32 or tensors["qzeros"].dtype != torch.int32:
        raise ModelInvalid(f"The quantised layer {name} is no matrix of int32 words: the checkpoint is damaged.")
    parts = WORD_BITS // quantisation.bits
    gptq = quantisation.method == "gptq"
    inner, outputs = (len(words) * parts, words.shape[1]) if gptq else (len(words), words.shape[1] * parts)
    size = inner if quantisation.group_size == -1 else quantisation.group_size
    groups = -(-inner // size)
    shapes = {"qzeros": (groups, -(-outputs // parts)), "scales": (groups, outputs), "g_idx": (inner,)}
    for part, shape in shapes.items():
        if part in tensors and tuple(tensors[part].shape) != shape:
            raise ModelInvalid(
                f"The quantised layer {name} has {part} of shape {list(tensors[part].shape)}, and {quantisation.bits} bits "
                f"in groups of {size} need {list(shape)}: the checkpoint is damaged or its quantization_config is another's."
            )
    group_of = tensors["g_idx"].long() if gptq and "g_idx" in tensors else _grouped(inner, size, words.device)
    if inner and not 0 <= int(group_of.min()) <= int(group_of.max()) < groups:
        raise ModelInvalid(
            f"The quantised layer {name} has a g_idx outside its {groups} groups: the checkpoint is damaged."
        )
    return group_of


def _grouped(inner: int, size: int, device: torch.device) -> torch.Tensor:
    """The group of each input where they are in order."""
    return torch.arange(inner, device=device) // size
