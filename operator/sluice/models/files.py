"""Which files of a model's folder are its weights, and how the header of one is read. Standard library only."""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final

LENGTH_BYTES: Final = 8  # of the header's length, at the beginning of a safetensors file
SINGLE: Final = "model.safetensors"
MAX_HEADER_BYTES: Final = 8 << 20  # a longer header is not read


class HeaderInvalid(ValueError):
    """The bytes are no header of a safetensors file."""


MAX_DIMENSIONS: Final = 8
MAX_BYTES: Final = 1 << 60  # of a tensor
_SHARD: Final = re.compile(r"model-\d{5}-of-\d{5}\.safetensors", re.ASCII)


def weight_names(names: Iterable[str]) -> tuple[str, ...]:
    """The safetensors in the root, in order. Where files of transformers' name exist, others (consolidated.*) repeat
    them."""
    found = sorted(name for name in names if "/" not in name and name.endswith(".safetensors"))
    found = [name for name in found if not name.startswith("adapter_")]
    return tuple(name for name in found if name.startswith("model")) or tuple(found)


def loaded_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those of `weight_names` that transformers loads: the single file if there is one, else the shards."""
    found = weight_names(names)
    if SINGLE in found:
        return (SINGLE,)
    return tuple(name for name in found if _SHARD.fullmatch(name)) or found


def header_length(first: bytes) -> int:
    """The length of the header, from the first LENGTH_BYTES of the file. Raises HeaderInvalid."""
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if len(first) < LENGTH_BYTES or not 2 <= length <= MAX_HEADER_BYTES:
        raise HeaderInvalid(f"a header of {length} bytes")
    return length


def parse_header(text: bytes) -> dict[str, Any]:
    """The header: tensor → {dtype, shape, data_offsets}. Raises HeaderInvalid."""
    try:
        header = json.loads(text)
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        whole = all(
            all(type(size) is int and size >= 0 for size in entry["shape"])
            and math.prod(entry["shape"][:MAX_DIMENSIONS]) < MAX_BYTES
            and len(entry["shape"]) <= MAX_DIMENSIONS
            and 0 <= entry["data_offsets"][0] <= entry["data_offsets"][1] < MAX_BYTES
            for entry in tensors
        )
    except (ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise HeaderInvalid("not a safetensors header") from error
    if not whole:
        raise HeaderInvalid("not a safetensors header")
    return dict(header)
