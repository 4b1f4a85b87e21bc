"""Products with int8 weights as formulas over tensors, and single products of the compiled library."""

import ctypes
from typing import Any

import torch

from sluice_engine.backend.cpu.structs import Product

OUTLIERS, OUTLYING = 6, 5.0  # as in kernels.h


def quantised_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[out, in] → integers as float [out, in] and scales [out, 1]: symmetric, one scale per output."""
    largest = weight.float().abs().amax(dim=1, keepdim=True)
    of_one = torch.full_like(largest, 127) / largest  # 127 / largest would multiply by a rounded reciprocal
    return (weight.float() * of_one).round(), largest / 127


def quantised_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., in] → integers without their zero as float, and steps [..., 1]: 255 steps between the row's least and largest
    value and 0. The OUTLIERS largest values beyond OUTLYING mean magnitudes are left out of that range and keep their
    integer.
    """
    wide = rows.float()
    magnitude = wide.abs()
    largest, bound = magnitude.amax(dim=-1, keepdim=True), OUTLYING * magnitude.mean(dim=-1, keepdim=True)
    beyond = magnitude > bound
    order = torch.where(beyond, magnitude, -1).argsort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(beyond).scatter(-1, order[..., :OUTLIERS], True) & beyond
    kept = torch.where(chosen, 0, wide)
    least, most = kept.amin(dim=-1, keepdim=True).clamp_max(0), kept.amax(dim=-1, keepdim=True).clamp_min(0)
    step = (most / 255 - least / 255).maximum(largest / 2**20)
    inverse = torch.where(step > 1e-36, 1 / step, 0)
    zero = (-least * inverse).round()
    whole = (wide * inverse).round()
    return torch.where(chosen, whole, whole.clamp(-zero, 255 - zero)), step


def int8_product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """rows [..., in], weight [out, in] → [..., out] float32."""
    (integers, steps), (weights, scales) = quantised_rows(rows), quantised_weight(weight)
    sums = (integers.double() @ weights.double().T).float()
    out = sums * scales.squeeze(1) * steps
    return out if bias is None else out + bias.float()


class _Int8(torch.nn.Module):
    """A linear layer by `int8_product`, rounded to its dtype."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in] → [..., out]"""
        return int8_product(rows, self.weight, self.bias).to(rows.dtype)


def as_int8(model: Any) -> Any:
    """The model with its linear layers replaced by `int8_product`; a tied embedding becomes that of the int8 head."""
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for name, linear in [(n, m) for n, m in model.named_modules() if type(m) is torch.nn.Linear]:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, _Int8(linear))
    if tied:
        embedding = model.get_input_embeddings()
        integers, scales = quantised_weight(embedding.weight)
        embedding.weight = torch.nn.Parameter((integers * scales).to(embedding.weight.dtype), requires_grad=False)
    return model


def compiled_product(
    library: ctypes.CDLL, level: int, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """rows [count, in], weight [out, in], bias [out] → [count, out], all of one dtype, by the library's int8 product."""
    for name in ("sluice_packed_rows", "sluice_packed_bytes", "sluice_quantised_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    (outer, inner), bf16 = weight.shape, int(weight.dtype == torch.bfloat16)
    product = Product(None, None, inner, outer, 0, 1)
    packed = _aligned(library.sluice_packed_bytes(ctypes.byref(product), bf16, level))
    packed_bias = _aligned(4 * library.sluice_packed_rows(ctypes.byref(product), level))
    library.sluice_pack(
        ctypes.byref(product),
        _pointer(weight),
        _pointer(bias),
        bf16,
        _pointer(packed),
        None if bias is None else _pointer(packed_bias),
        level,
    )
    product.packed = packed.data_ptr()
    product.bias = None if bias is None else packed_bias.data_ptr()
    out = torch.full((len(rows) + 1, outer), 7.0, dtype=rows.dtype)  # the last row must stay
    quantised = _aligned(max(1, len(rows)) * library.sluice_quantised_bytes(ctypes.c_int64(inner)))
    library.sluice_multiply(
        ctypes.byref(product),
        _pointer(rows),
        ctypes.c_int64(len(rows)),
        _pointer(out),
        ctypes.c_int64(outer),
        bf16,
        _pointer(quantised),
        level,
    )
    assert bool((out[-1] == 7).all())
    return out[:-1]


def _aligned(size: int) -> torch.Tensor:
    memory = torch.zeros(size + 64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 64 :]


def _pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
