"""Checkpoints in GPTQ and AWQ format, quantised to the nearest here and packed word by word from the formats' definition.

It shares no code with the loader, whose result is compared with the weights that `quantised` computes.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

AWQ_ORDER = {4: [0, 2, 4, 6, 1, 3, 5, 7], 8: [0, 2, 1, 3]}


@dataclass(frozen=True)
class Format:
    """How a checkpoint is packed. `shuffled`: rows belong to groups in another order (GPTQ's activation order)."""

    method: str
    bits: int
    group: int = 32
    v2: bool = False
    shuffled: bool = False

    def config(self) -> dict[str, object]:
        """Its quantization_config."""
        common = {"quant_method": self.method, "bits": self.bits, "group_size": self.group}
        if self.method == "awq":
            return common | {"version": "gemm", "zero_point": True}
        return common | {"desc_act": self.shuffled, "checkpoint_format": "gptq_v2" if self.v2 else "gptq"}


@dataclass(frozen=True)
class Rounded:
    """A weight [inner, outputs] rounded to the nearest integers, and what it then is."""

    values: NDArray[np.int64]
    zeros: NDArray[np.int64]
    scales: NDArray[np.float16]
    group_of: NDArray[np.int64]

    def dense(self) -> NDArray[np.float32]:
        """(value - zero) · scale, element by element of its group."""
        distance = (self.values - self.zeros[self.group_of]).astype(np.float32)
        return distance * self.scales[self.group_of].astype(np.float32)


def quantised(weight: NDArray[np.float32], form: Format, seed: int = 0) -> Rounded:
    """The weight [inner, outputs] in this format's precision, with one scale between each group's least and largest."""
    inner = len(weight)
    size = inner if form.group == -1 else form.group
    group_of = np.arange(inner) // size
    if form.shuffled:
        np.random.default_rng(seed).shuffle(group_of)
    most = 2**form.bits - 1
    scales = np.zeros((group_of.max() + 1, weight.shape[1]), np.float16)
    zeros = np.zeros(scales.shape, np.int64)
    for group in range(len(scales)):
        rows = weight[group_of == group]
        low, high = np.minimum(rows.min(0), 0), np.maximum(rows.max(0), 0)
        scales[group] = np.maximum((high - low) / most, 1e-4)
        # GPTQ's first format stores zero - 1
        zeros[group] = np.clip(np.rint(-low / scales[group].astype(np.float32)), 1, most)
    steps = np.rint(weight / scales[group_of].astype(np.float32)).astype(np.int64)
    return Rounded(np.clip(steps + zeros[group_of], 0, most), zeros, scales, group_of)


def packed(rounded: Rounded, form: Format) -> dict[str, torch.Tensor]:
    """The tensors of one layer."""
    order = AWQ_ORDER[form.bits] if form.method == "awq" else list(range(32 // form.bits))
    stored = rounded.zeros - (1 if form.method == "gptq" and not form.v2 else 0)
    along = _words(rounded.values.T, order, form.bits).T if form.method == "gptq" else None
    tensors = {
        "qweight": _words(rounded.values, order, form.bits) if along is None else along,
        "qzeros": _words(stored, order, form.bits),
    }
    found = {name: torch.from_numpy(np.ascontiguousarray(words)) for name, words in tensors.items()}
    found["scales"] = torch.from_numpy(rounded.scales)
    if form.method == "gptq":
        found["g_idx"] = torch.from_numpy(rounded.group_of.astype(np.int32))
    return found


def _words(values: NDArray[np.int64], order: list[int], bits: int) -> NDArray[np.int32]:
    """Packs the last dimension: part i of a word is its element order[i]."""
    parts = values.reshape(len(values), -1, len(order))
    words = np.zeros(parts.shape[:2], np.uint32)
    for part, element in enumerate(order):
        words |= (parts[:, :, element].astype(np.uint32) << np.uint32(part * bits)).astype(np.uint32)
    return words.view(np.int32)


def quantise_folder(
    source: Path, target: Path, form: Format, given: Mapping[str, Rounded] | None = None
) -> tuple[Path, Path]:
    """Two copies of a dense folder: with the layers' projections packed, and with the weights that these stand for. They are
    rounded to the nearest, or `given` by the names of the weights.
    """
    dense, folder = target / "dense", target / "packed"
    for each in (dense, folder):
        shutil.copytree(source, each, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(source / "model.safetensors")
    words: dict[str, torch.Tensor] = {}
    for name in [name for name in weights if ".layers." in name and weights[name].dim() == 2]:
        if ".gate." in name or name.endswith("mlp.gate.weight"):
            continue  # the router of a mixture of experts stays dense in both formats
        rounded = quantised(weights[name].float().numpy().T, form) if given is None else given[name]
        layer = name.removesuffix(".weight")
        words |= {f"{layer}.{part}": tensor for part, tensor in packed(rounded, form).items()}
        weights[name] = torch.from_numpy(np.ascontiguousarray(rounded.dense().T)).to(weights[name].dtype)
    save_file(weights, dense / "model.safetensors", {"format": "pt"})
    kept = {name: tensor for name, tensor in weights.items() if f"{name.removesuffix('.weight')}.qweight" not in words}
    save_file(kept | words, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": form.config()}))
    return folder, dense
