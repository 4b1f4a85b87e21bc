"""What a folder's files hold: plain tensors, and the quantised layers of a GPTQ or AWQ checkpoint as dense weights.

A quantised layer is read and dequantised on the device, one after the other: the host holds the words of one.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from sluice.models.files import LENGTH_BYTES, HeaderInvalid, header_length, parse_header
from sluice.models.quantisation import WORD_BITS, Quantisation
from sluice_engine.backend.cuda.loading.staging import FileEndsEarly
from sluice_engine.model.quantised.checkpoint import PARTS, WORDS, check_layer, check_layers, unpack_layer

AT_ONCE: Final = 1 << 24  # elements that are dequantised at once: each takes about 25 bytes of the device meanwhile
DTYPES: Final = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in its file."""

    path: Path
    offset: int  # from the beginning of the file
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: int  # bytes

    def read(self) -> torch.Tensor:
        """The tensor on the host. Raises FileEndsEarly and OSError."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            raw = bytearray(file.read(self.size))
        if len(raw) < self.size:
            raise FileEndsEarly
        return (
            torch.frombuffer(raw, dtype=self.dtype).view(self.shape)
            if raw
            else torch.empty(self.shape, dtype=self.dtype)
        )


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A quantised layer. `parts`: its tensors by name. `shape`: of the dense weight [outputs, inner]."""

    name: str
    parts: dict[str, StoredTensor]
    quantisation: Quantisation

    @property
    def path(self) -> Path:
        """Of its words."""
        return self.parts[WORDS].path

    @property
    def size(self) -> int:
        """Bytes in the files."""
        return sum(each.size for each in self.parts.values())

    @property
    def shape(self) -> tuple[int, ...]:
        """Empty for words that are no matrix."""
        words, parts = self.parts[WORDS].shape, WORD_BITS // self.quantisation.bits
        if len(words) != 2:
            return ()
        return (words[1], words[0] * parts) if self.quantisation.method == "gptq" else (words[1] * parts, words[0])

    def copy_to(self, weight: torch.Tensor) -> None:
        """Dequantise into the weight [outputs, inner], some outputs at once. Raises ModelInvalid, FileEndsEarly and OSError."""
        name, tensors = f"{self.name} in {self.path.parent}", {part: where.read() for part, where in self.parts.items()}
        check_layer(name, tensors, self.quantisation)
        outputs, inner = self.shape
        step = max(1, AT_ONCE // max(inner, 1) // WORD_BITS) * WORD_BITS
        for first in range(0, outputs, step):
            some = {part: self._columns(part, each, first, step) for part, each in tensors.items()}
            placed = {part: each.to(weight.device) for part, each in some.items()}
            weight[first : first + step].copy_(unpack_layer(name, placed, self.quantisation).dequantised())

    def _columns(self, part: str, tensor: torch.Tensor, first: int, count: int) -> torch.Tensor:
        """Of a part's tensor, what belongs to these outputs; `first` and `count` are multiples of a word's integers."""
        if part == "g_idx":
            return tensor
        if part == "qzeros" or (part == WORDS and self.quantisation.method == "awq"):
            parts = WORD_BITS // self.quantisation.bits
            first, count = first // parts, count // parts
        return tensor[:, first : first + count]


Stored = StoredTensor | StoredLayer


def in_file(path: Path) -> dict[str, StoredTensor]:
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


def with_layers(stored: dict[str, StoredTensor], quantisation: Quantisation, folder: Path) -> dict[str, Stored]:
    """The same with the tensors of each quantised layer as its one weight. Raises ModelInvalid without such a layer."""
    layers = [name.removesuffix(f".{WORDS}") for name in stored if name.endswith(f".{WORDS}")]
    check_layers(layers, quantisation, folder)
    parts = {layer: {part: where for part in PARTS if (where := stored.get(f"{layer}.{part}"))} for layer in layers}
    taken = {f"{layer}.{part}" for layer, held in parts.items() for part in held}
    plain: dict[str, Stored] = {name: where for name, where in stored.items() if name not in taken}
    return plain | {f"{layer}.weight": StoredLayer(layer, held, quantisation) for layer, held in parts.items()}
