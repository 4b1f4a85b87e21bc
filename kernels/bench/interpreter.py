"""Makes Triton's interpreter round as a GPU does, and keep quiet about IEEE results that a GPU computes silently.

The interpreter of 3.6 to 3.9 truncates float32 to bfloat16, loses the carry of a rounded fp8 mantissa and reads fp8's NaN as
480. Here torch converts instead. That of 3.6 makes the bound of a loop a number in a way that NumPy 2.4 refuses.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

_NAMES = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2,
}  # fmt: skip
_BITS = {
    1: (torch.uint8, np.uint8),
    2: (torch.int16, np.uint16),
    4: (torch.int32, np.uint32),
    8: (torch.int64, np.uint64),
}


def correct_interpreter() -> None:
    """Replaces the interpreter's float conversion and its loop bounds in this process, which must have TRITON_INTERPRET=1."""
    from triton.runtime import interpreter

    interpreter._convert_float = _convert
    interpreter._patch_lang_tensor = partial(_patch_tensor, interpreter._patch_lang_tensor)
    np.seterr(all="ignore")


def _patch_tensor(plain: Callable[[Any, Any], None], tensor: Any, scope: Any) -> None:
    """What Triton does to its tensors while a kernel is interpreted; as an index a tensor is its only element."""
    plain(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:
    """The bits of `values` [any shape] of Triton's type `source`, rounded to nearest even, as bits of `target`."""
    before, after = _NAMES[source.name], _NAMES[target.name]
    bits, unsigned = _BITS[before.itemsize]
    signed = np.ascontiguousarray(values).view(unsigned).view(f"i{before.itemsize}" if before.itemsize > 1 else "u1")
    rounded = torch.from_numpy(signed).view(before).to(after)
    bits, unsigned = _BITS[after.itemsize]
    return rounded.view(bits).numpy().view(unsigned)
