"""RMS norm in Triton: add, norm and quantisation in one pass, a tile of whole rows per program."""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.fp8 import FP8
from sluice_kernels.integers import cdiv, next_power_of_2
from sluice_kernels.rms_norm.configs import config_of
from sluice_kernels.tiles import count_nan, fp8_scale, in_fp8_range


@triton.jit(do_not_specialize=["row_count"])
def _rms_norm(  # type: ignore[no-untyped-def]
    x,  # [rows, width]
    residual,  # [rows, width], read and written; None: nothing is added
    weight,  # [width]
    out,  # [rows, width]
    scales,  # [rows] float32; None: out is not quantised
    row_count,
    x_stride,
    residual_stride,
    eps,
    weight_offset,
    width: tl.constexpr,
    block: tl.constexpr,
    rows: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.arange(0, block)
    inside = column < width
    mask = (row < row_count)[:, None] & inside[None, :]
    values = tl.load(x + row[:, None] * x_stride + column[None, :], mask=mask, other=0.0).to(tl.float32)
    if residual is not None:
        place = residual + row[:, None] * residual_stride + column[None, :]
        summed = (values + tl.load(place, mask=mask, other=0.0).to(tl.float32)).to(residual.dtype.element_ty)
        tl.store(place, summed, mask=mask)
        values = summed.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 1) / width + eps)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) + weight_offset
    result = values * scale[:, None] * factor[None, :]
    if scales is not None:
        largest = tl.max(tl.where(mask, tl.abs(result), 0.0), 1)
        row_scale = fp8_scale(largest, count_nan(result, 1))
        tl.store(scales + row, row_scale, mask=row < row_count)
        result = in_fp8_range(result / row_scale[:, None])
    tl.store(out + row[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=mask)


def rms_norm_triton(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float, residual: torch.Tensor | None
) -> torch.Tensor:
    """Computes `rms_norm_reference`."""
    out = launch.empty(tuple(x.shape), x.dtype, x.device)
    _launch((x, residual, weight, out, None), eps, weight_offset)
    return out


def rms_norm_fp8_triton(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float, residual: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes `rms_norm_fp8_reference`."""
    out = launch.empty(tuple(x.shape), FP8, x.device)
    scales = launch.empty((x.shape[0],), torch.float32, x.device)
    _launch((x, residual, weight, out, scales), eps, weight_offset)
    return out, scales


def _launch(
    tensors: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor, torch.Tensor | None],
    eps: float,
    weight_offset: float,
) -> None:
    x, residual = tensors[:2]
    count, width = x.shape
    if count == 0:
        return
    block = next_power_of_2(width)
    config = config_of(block)
    strides = (x.stride(0), 0 if residual is None else residual.stride(0))
    launch.launch(
        _rms_norm, (cdiv(count, config.rows),), (*tensors, count, *strides, eps, weight_offset),
        width=width, block=block, rows=config.rows, num_warps=config.warps,
    )  # fmt: skip
