"""Each tensor of each public function, with a wrong shape, dtype, device or stride, raises ValueError that begins with its name
and has what is expected.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

from sluice_kernels.block_copy import block_copy
from sluice_kernels.grouped_weights import GroupedWeights
from sluice_kernels.kv_write import HeadNorm, PagedCache, Rope, kv_write
from sluice_kernels.moe import ExpertWeights, Routing, RoutingRule, Shared, moe, route
from sluice_kernels.paged_decode import AttentionRule, PagedKV, paged_decode
from sluice_kernels.paged_prefill import paged_prefill
from sluice_kernels.rms_norm import rms_norm, rms_norm_fp8
from sluice_kernels.sample import Bias, Draws, Penalties, Rows, sample, token_logprobs
from sluice_kernels.silu_mul import silu_mul, silu_mul_fp8
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16

FP8 = torch.float8_e4m3fn
F32, F64, I16, I32, I64 = torch.float32, torch.float64, torch.int16, torch.int32, torch.int64


def ones(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def zeros(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


Arguments = dict[str, Any]
X = ones(3, 8)
QUERY, KEY = ones(2, 4, 8), ones(2, 2, 8)
PAGES = (ones(4, 16, 2, 8).to(FP8), ones(4, 16, 2, 8).to(FP8))
SCALES = (ones(2), ones(2))
NORM: Arguments = {"x": X, "weight": ones(8), "eps": 1e-6, "weight_offset": 0.0, "residual": ones(3, 8)}
ATTEND: Arguments = {
    "query": QUERY,
    "kv": PagedKV(*PAGES, zeros(2, 3, dtype=I32), ones(2, dtype=I32), *SCALES),
    "rule": AttentionRule(sinks=ones(4)),
}
SAMPLE: Arguments = {
    "logits": ones(2, 70),
    "rows": Rows(zeros(2, dtype=I32), zeros(2, dtype=I64), ones(2, 3, dtype=I32)),
    "draws": Draws(ones(5), ones(5), ones(5, dtype=I32), ones(5, dtype=F64), ones(5, dtype=I64)),
    "penalties": Penalties(ones(5, 70, dtype=I32), ones(5, 70, dtype=torch.bool), ones(5), ones(5), ones(5)),
    "bias": Bias(zeros(5, 2, dtype=I32), ones(5, 2), ones(5, dtype=I32)),
}


def grouped(bits: int) -> Arguments:
    words = zeros(256 * bits // 32, 6, dtype=I32)
    return {
        "x": ones(2, 256),
        "weights": GroupedWeights(words, ones(2, 6), zeros(2, 6, dtype=I16), torch.arange(256)),
    }


FUNCTIONS: dict[Callable[..., object], Arguments] = {
    rms_norm: NORM,
    rms_norm_fp8: NORM,
    silu_mul: {"gate_up": X},
    silu_mul_fp8: {"gate_up": X},
    paged_decode: ATTEND,
    paged_prefill: ATTEND | {"starts": torch.tensor([0, 1, 2], dtype=I32)},
    kv_write: {
        "query": QUERY,
        "key": KEY,
        "value": KEY.clone(),
        "cache": PagedCache(*PAGES, torch.tensor([1, -1]), *SCALES),
        "rope": Rope(ones(10, 8), torch.tensor([0, 1])),
        "norm": HeadNorm(ones(8), ones(8), 1e-6),
    },
    block_copy: {"source": ones(4, 3), "target": ones(4, 3), "pairs": torch.tensor([[0, 1], [2, 3]])},
    sample: SAMPLE,
    token_logprobs: {"logits": ones(2, 70), "tokens": zeros(2, dtype=I64), "count": 3},
    w4a16: grouped(4),
    w8a16: grouped(8),
    route: {"logits": X, "rule": RoutingRule(2)},
    moe: {
        "x": X,
        "weights": ExpertWeights(ones(4, 10, 8), ones(4, 8, 5)),
        "routing": Routing(zeros(3, 2, dtype=I32), ones(3, 2)),
        "shared": Shared(ones(3, 8), ones(3, 1)),
    },
}


def named_tensors(given: Arguments) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every tensor; a field of an argument is named after both."""
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif is_dataclass(value):
            parts = ((each.name, getattr(value, each.name)) for each in fields(value))
            yield from ((f"{name}.{part}", each) for part, each in parts if isinstance(each, torch.Tensor))


def with_tensor(given: Arguments, name: str, tensor: torch.Tensor) -> Arguments:
    """The same arguments but for this tensor."""
    argument, _, part = name.partition(".")
    return given | {argument: replace(given[argument], **{part: tensor}) if part else tensor}


def other_dtype(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to({F64: F32, torch.bool: torch.int8, I16: I64}.get(tensor.dtype, F64 if _is_float(tensor) else I16))


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """With gaps between the elements of the last dimension."""
    return torch.stack([tensor.float(), tensor.float()], -1).to(tensor.dtype)[..., 0]


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "shape": lambda tensor: tensor.unsqueeze(0),
    "dtype": other_dtype,
    "device": lambda tensor: tensor.to("meta"),
    "stride": strided,
}


def wrong_calls() -> Iterator[Any]:
    for function, given in FUNCTIONS.items():
        names = [name for name, _ in named_tensors(given)]
        for name, tensor in named_tensors(given):
            for kind, fault in FAULTS.items():
                if kind == "device" and name == names[0]:  # all others are compared with it
                    continue
                if function is block_copy and name == "source" and kind in ("shape", "dtype"):  # blocks of anything
                    continue
                if kind == "stride" and tensor.shape[-1] == 1:  # a single element has no stride
                    continue
                wrong = partial(function, **with_tensor(given, name, fault(tensor)))
                yield pytest.param(wrong, name, id=f"{function.__name__}, {name}: {kind}")


@pytest.mark.parametrize("function", [*FUNCTIONS], ids=lambda function: function.__name__)
def test_the_arguments_are_right_without_a_fault(function: Callable[..., object]) -> None:
    function(**FUNCTIONS[function])


@pytest.mark.parametrize(("call", "name"), [*wrong_calls()])
def test_a_wrong_tensor_is_named_with_what_is_expected(call: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .*(expected|supports)"):
        call()


def test_the_first_tensors_device_is_what_the_others_are_compared_with() -> None:
    for function, given in FUNCTIONS.items():
        (first, tensor), *others = named_tensors(given)
        for name, other in others[:1]:
            with pytest.raises(ValueError, match=rf"^{name}: expected device"):
                function(**with_tensor(given, name, other.to("meta")))
        assert tensor.device.type == "cpu", first
