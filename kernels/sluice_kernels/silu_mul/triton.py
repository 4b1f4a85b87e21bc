"""Gated activation in Triton. Unquantised, each tile is one program; with fp8, a program reads its row twice: the
largest value must be known before the first is written, and the second read comes from the L2 cache.
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.fp8 import FP8
from sluice_kernels.integers import cdiv, next_power_of_2
from sluice_kernels.silu_mul.configs import QUANTISED, config_of
from sluice_kernels.tiles import count_nan, fp8_scale, in_fp8_range, sigmoid


@triton.jit
def _gated(gate, up, gelu: tl.constexpr):  # type: ignore[no-untyped-def]
    """0.5 · (1 + tanh(z)) is sigmoid(2 z), so both activations are the gate times a sigmoid."""
    if gelu:
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)  # 2 · sqrt(2 / π)
        activated = tl.where(gate == -float("inf"), 0.0, gate * sigmoid(inner))
    else:
        activated = gate * sigmoid(gate)
    return activated * up


@triton.jit(do_not_specialize=["row_count"])
def _silu_mul(  # type: ignore[no-untyped-def]
    gate_up,  # [rows, 2 · width]
    out,  # [rows, width]
    row_count,
    stride,
    width: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gelu: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    mask = (row < row_count)[:, None] & (column < width)[None, :]
    place = gate_up + row[:, None] * stride + column[None, :]
    gate = tl.load(place, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(place + width, mask=mask, other=0.0).to(tl.float32)
    result = _gated(gate, up, gelu)
    tl.store(out + row[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _silu_mul_fp8(  # type: ignore[no-untyped-def]
    gate_up,  # [rows, 2 · width]
    out,  # [rows, width] e4m3
    scales,  # [rows] float32
    stride,
    width: tl.constexpr,
    columns: tl.constexpr,
    gelu: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros([columns], tl.float32)
    bad = 0
    for start in range(0, width, columns):
        column = start + tl.arange(0, columns)
        place = gate_up + row * stride + column
        gate = tl.load(place, mask=column < width, other=0.0).to(tl.float32)
        up = tl.load(place + width, mask=column < width, other=0.0).to(tl.float32)
        result = _gated(gate, up, gelu)
        largest = tl.maximum(largest, tl.abs(result))
        bad += count_nan(result, 0)
    scale = fp8_scale(tl.max(largest, 0), bad)
    tl.store(scales + row, scale)
    for start in range(0, width, columns):
        column = start + tl.arange(0, columns)
        place = gate_up + row * stride + column
        gate = tl.load(place, mask=column < width, other=0.0).to(tl.float32)
        up = tl.load(place + width, mask=column < width, other=0.0).to(tl.float32)
        result = in_fp8_range(_gated(gate, up, gelu) / scale)
        tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=column < width)


def silu_mul_triton(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """Computes `silu_mul_reference`."""
    count, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = launch.empty((count, width), gate_up.dtype, gate_up.device)
    if count == 0:
        return out
    config = config_of(next_power_of_2(width))
    launch.launch(
        _silu_mul, (cdiv(count, config.rows), cdiv(width, config.columns)),
        (gate_up, out, count, gate_up.stride(0)),
        width=width, rows=config.rows, columns=config.columns, gelu=activation == "gelu_tanh", num_warps=config.warps,
    )  # fmt: skip
    return out


def silu_mul_fp8_triton(gate_up: torch.Tensor, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes `silu_mul_fp8_reference`."""
    count, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = launch.empty((count, width), FP8, gate_up.device)
    scales = launch.empty((count,), torch.float32, gate_up.device)
    if count == 0:
        return out, scales
    columns = min(QUANTISED.columns, next_power_of_2(width))
    launch.launch(
        _silu_mul_fp8, (count,), (gate_up, out, scales, gate_up.stride(0)),
        width=width, columns=columns, gelu=activation == "gelu_tanh", num_warps=QUANTISED.warps,
    )  # fmt: skip
    return out, scales
