"""The `quantization_config` of a checkpoint: which formats the engine loads. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

METHODS: Final = ("gptq", "awq")
BITS: Final = (4, 8)
MAX_GROUP: Final = 1 << 20
WORD_BITS: Final = 32  # values are packed into words of so many bits
_SERVED: Final = "Served are GPTQ and AWQ (gemm) checkpoints of 4 and 8 bits, and models that are not quantised."
# GPTQ's first format stores zero - 1, so that a zero of 0 cannot be stored; the second stores the zero itself.
_GPTQ_OFFSETS: Final = {"gptq": 1, "gptq_v2": 0}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Integers with one scale and one zero point per group of inputs and output."""

    method: str  # of METHODS
    bits: int  # of BITS
    group_size: int  # inputs that share a scale; -1: all
    zero_offset: int  # what is added to a stored zero


def read_quantisation(config: Mapping[str, Any]) -> Quantisation | str | None:
    """What a config.json says: None if the checkpoint is not quantised, a sentence's predicate if it is not served."""
    given = config.get("quantization_config")
    if not isinstance(given, dict):
        return None
    method = given.get("quant_method")
    name = _quoted(method or "an unnamed method")
    if method not in METHODS:
        return f"is quantised ({name}), and that method is not served. {_SERVED}"
    bits, group = given.get("bits", given.get("w_bit")), given.get("group_size", given.get("q_group_size"))
    fault = _fault(given, method, bits, group)
    if fault is not None or not isinstance(bits, int) or not isinstance(group, int):
        return f"is quantised ({name}) {fault}. {_SERVED}"
    offset = _GPTQ_OFFSETS[given.get("checkpoint_format") or "gptq"] if method == "gptq" else 0
    return Quantisation(method, bits, group, offset)


def _fault(given: Mapping[str, Any], method: str, bits: object, group: object) -> str | None:
    """The first property that is not served, as the end of "is quantised (gptq) …"."""
    if type(bits) is not int or bits not in BITS:
        return f"with bits {_quoted(bits)}"
    if type(group) is not int or not (group == -1 or 0 < group <= MAX_GROUP):
        return f"with group_size {_quoted(group)}, which is neither -1 nor a number of inputs"
    if method == "awq":
        version = given.get("version") or "gemm"
        return None if str(version).lower() == "gemm" else f"in the version {_quoted(version)}"
    stored = given.get("checkpoint_format") or "gptq"
    if not isinstance(stored, str) or stored not in _GPTQ_OFFSETS:
        return f"in the format {_quoted(stored)}"
    if given.get("dynamic"):
        return "with settings per layer (dynamic)"
    if given.get("pack_dtype", "int32") != "int32":
        return f"with words of {_quoted(given['pack_dtype'])}"
    return None


def _quoted(value: object) -> str:
    """A value of a config, which comes from outside, as a short printable text."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:100])
