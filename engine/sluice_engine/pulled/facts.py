"""What a model folder's files say about the model, without loading it: size, shape, context, KV memory per token."""

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from sluice_engine.errors import ModelInvalid

_DTYPES: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_MOST_HEADER: Final = 1 << 28  # bytes; a longer safetensors header is damage


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's size and shape."""

    architecture: str
    parameters: int
    dtype: str  # of most weights
    context: int | None  # tokens; None if the config does not say
    disk_bytes: int
    kv_elements: int  # keys and values of one token over all layers; 0 for a model that caches none

    def kv_bytes(self, dtype: str) -> int:
        """KV bytes per token when the engine computes in `dtype`."""
        return self.kv_elements * _BYTES[dtype]

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of the weights in memory in `dtype`."""
        return self.parameters * _BYTES[dtype]


def read_facts(folder: Path) -> ModelFacts:
    """The facts of a model folder. Raises ModelInvalid if it has no readable config or weights."""
    config = _config(folder)
    tensors = [entry for file in sorted(folder.glob("*.safetensors")) for entry in _tensors(file)]
    if not tensors:
        raise ModelInvalid(f"{folder} holds no *.safetensors.")
    elements: Counter[str] = Counter()
    for entry in tensors:
        elements[_DTYPES.get(entry["dtype"], entry["dtype"].lower())] += prod(entry["shape"])
    architecture = next(iter(config.get("architectures") or ()), config.get("model_type", "unknown"))
    return ModelFacts(
        architecture=architecture,
        parameters=elements.total(),
        dtype=elements.most_common(1)[0][0],
        context=config.get("max_position_embeddings"),
        disk_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        kv_elements=_kv_elements(config) if architecture.endswith(("ForCausalLM", "LMHeadModel")) else 0,
    )


def _kv_elements(config: Mapping[str, Any]) -> int:
    """Keys and values of one token. Layers with a sliding window count too: they hold them inside the window."""
    heads = int(config.get("num_attention_heads") or 0)
    size = config.get("head_dim") or int(config.get("hidden_size") or 0) // max(heads, 1)
    kv_heads = config.get("num_key_value_heads") or heads
    return 2 * int(config.get("num_hidden_layers") or 0) * int(kv_heads) * int(size)


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{folder / 'config.json'} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelInvalid(f"{folder / 'config.json'} must hold a JSON object.")
    return {**config, **(config.get("text_config") or {})}


def _tensors(file: Path) -> list[dict[str, Any]]:
    """The tensors' entries in the header of a safetensors file: 8 bytes of length, then JSON."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > _MOST_HEADER:
                raise ValueError(f"its header would have {length} bytes")
            header = json.loads(opened.read(length))
        return [entry for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, struct.error) as error:
        raise ModelInvalid(f"{file} is no safetensors file: {error}. Remove the model and pull it again.") from error
