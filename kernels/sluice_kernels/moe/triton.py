"""The expert products in Triton: one program per tile of places and tile of outputs, over the places of `routing.py`.

The grid has as many tiles as the pairs can need; the programs of unused ones return at once. The product of gate and up
gathers its rows by place and applies silu · mul; the last launch adds each row's outputs in the order of its choices, so no
sum depends on the order of programs.
"""

from typing import Final

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.integers import cdiv, next_power_of_2
from sluice_kernels.moe.configs import Config, Configs, config_of
from sluice_kernels.moe.reference import Alignment, ExpertWeights, Routing, Shared
from sluice_kernels.moe.routing import align_triton
from sluice_kernels.paged_decode.triton import operand_of
from sluice_kernels.tiles import sigmoid

BAND: Final = 8  # tiles of places that share the columns of weights before the next columns
COMBINED: Final = 1024  # most columns per program of the last launch


@triton.jit
def _tile_and_columns(tiles, width, columns: tl.constexpr, band: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which tile of places and tile of columns a program computes: within a band, the tiles go first."""
    program = tl.program_id(0)
    across = tl.cdiv(width, columns)
    first = program // (band * across) * band
    high = tl.minimum(tiles - first, band)
    within = program % (band * across)
    return first + within % high, within // high


@triton.jit(do_not_specialize=["tiles"])
def _expert_gate_up(  # type: ignore[no-untyped-def]
    x,  # [rows, inputs]
    weight,  # [experts, 2 · width, inputs]
    out,  # [tiles · tile, width]
    order,  # [tiles · tile] int32
    tile_experts,  # [tiles] int32
    ends,  # [experts] int32
    tiles,
    x_stride,
    inputs,
    width,
    expert_count: tl.constexpr,
    top_k: tl.constexpr,
    tile: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    band: tl.constexpr,
    operand: tl.constexpr,
):
    at, across = _tile_and_columns(tiles, width, columns, band)
    expert = tl.load(tile_experts + at)
    if expert >= expert_count:
        return
    place = at * tile + tl.arange(0, tile)
    used = place < tl.load(ends + expert)
    row = tl.load(order + place, mask=used, other=0) // top_k
    column, step = across * columns + tl.arange(0, columns), tl.arange(0, depth)
    inside = column < width
    x_at = x + row.to(tl.int64)[:, None] * x_stride + step[None, :]
    of_gate = expert.to(tl.int64) * 2 * width + column
    gate_at = weight + of_gate[None, :] * inputs + step[:, None]
    up_at = weight + (of_gate + width)[None, :] * inputs + step[:, None]
    gate = tl.zeros([tile, columns], tl.float32)
    up = tl.zeros([tile, columns], tl.float32)
    for start in range(0, inputs, depth):
        valid = step < inputs - start
        wanted = valid[:, None] & inside[None, :]
        rows = tl.load(x_at + start, mask=used[:, None] & valid[None, :], other=0.0).to(operand)
        gate = tl.dot(rows, tl.load(gate_at + start, mask=wanted, other=0.0).to(operand), gate, input_precision="ieee")
        up = tl.dot(rows, tl.load(up_at + start, mask=wanted, other=0.0).to(operand), up, input_precision="ieee")
    activated = gate * sigmoid(gate) * up
    to = out + place.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(to, activated.to(out.dtype.element_ty), mask=used[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["tiles"])
def _expert_down(  # type: ignore[no-untyped-def]
    x,  # [tiles · tile, inputs]
    weight,  # [experts, width, inputs]
    out,  # [tiles · tile, width]
    tile_experts,  # [tiles] int32
    ends,  # [experts] int32
    tiles,
    inputs,
    width,
    expert_count: tl.constexpr,
    tile: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    band: tl.constexpr,
    operand: tl.constexpr,
):
    at, across = _tile_and_columns(tiles, width, columns, band)
    expert = tl.load(tile_experts + at)
    if expert >= expert_count:
        return
    place = at * tile + tl.arange(0, tile)
    used = place < tl.load(ends + expert)
    column, step = across * columns + tl.arange(0, columns), tl.arange(0, depth)
    inside = column < width
    x_at = x + place.to(tl.int64)[:, None] * inputs + step[None, :]
    weight_at = weight + (expert.to(tl.int64) * width + column)[None, :] * inputs + step[:, None]
    acc = tl.zeros([tile, columns], tl.float32)
    for start in range(0, inputs, depth):
        valid = step < inputs - start
        rows = tl.load(x_at + start, mask=used[:, None] & valid[None, :], other=0.0).to(operand)
        values = tl.load(weight_at + start, mask=valid[:, None] & inside[None, :], other=0.0).to(operand)
        acc = tl.dot(rows, values, acc, input_precision="ieee")
    to = out + place.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=used[:, None] & inside[None, :])


@triton.jit
def _combine(  # type: ignore[no-untyped-def]
    outputs,  # [places, width]
    places,  # [rows, top_k] int32
    weights,  # [rows, top_k] float32
    shared,  # [rows, width] or None
    shared_gate,  # [rows, 1] or None
    out,  # [rows, width]
    width,
    shared_stride,
    gate_stride,
    top_k: tl.constexpr,
    columns: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < width
    total = tl.zeros([columns], tl.float32)
    for choice in tl.static_range(top_k):
        place = tl.load(places + row * top_k + choice).to(tl.int64)
        weight = tl.load(weights + row * top_k + choice)
        total += weight * tl.load(outputs + place * width + column, mask=inside, other=0.0).to(tl.float32)
    if shared is not None:
        weight = sigmoid(tl.load(shared_gate + row * gate_stride).to(tl.float32))
        total += weight * tl.load(shared + row * shared_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, total.to(out.dtype.element_ty), mask=inside)


def moe_triton(
    x: torch.Tensor,
    weights: ExpertWeights,
    routing: Routing,
    shared: Shared | None = None,
    configs: Configs | None = None,
) -> torch.Tensor:
    """Computes `moe_reference`. `configs` None: by the shapes and the device."""
    if x.shape[0] == 0:
        return launch.empty(tuple(x.shape), x.dtype, x.device)
    experts, inner = weights.gate_up.shape[0], weights.down.shape[2]
    if configs is None:
        configs = config_of(launch.device_of(x).architecture, x.dtype, routing.experts.numel() / experts)
    aligned = align_triton(routing.experts, experts, configs.tile)
    activated = launch.empty((len(aligned.order), inner), x.dtype, x.device)
    _product(
        _expert_gate_up, (x, weights.gate_up, activated, aligned.order), (x.stride(0), x.shape[1], inner),
        aligned, configs.gate_up, top_k=routing.experts.shape[1],
    )  # fmt: skip
    outputs = launch.empty((len(aligned.order), x.shape[1]), x.dtype, x.device)
    _product(_expert_down, (activated, weights.down, outputs), (inner, x.shape[1]), aligned, configs.down)
    return combine_triton(outputs, aligned.places, routing.weights, shared)


def _product(
    kernel: object, tensors: tuple[torch.Tensor, ...], sizes: tuple[int, ...], aligned: Alignment, config: Config,
    **constants: int,
) -> None:  # fmt: skip
    tiles = len(aligned.tile_experts)
    launch.launch(
        kernel, (tiles * cdiv(sizes[-1], config.columns),),
        (*tensors, aligned.tile_experts, aligned.ends, tiles, *sizes),
        expert_count=len(aligned.ends), tile=config.tile, columns=config.columns, depth=config.depth, band=BAND,
        operand=operand_of(tensors[0]), num_warps=config.warps, num_stages=config.stages, **constants,
    )  # fmt: skip


def combine_triton(
    outputs: torch.Tensor, places: torch.Tensor, weights: torch.Tensor, shared: Shared | None
) -> torch.Tensor:
    """Computes `combine_reference` of outputs [places, hidden] that lie at `places` [rows · top_k]."""
    (count, top_k), width = weights.shape, outputs.shape[1]
    out = launch.empty((count, width), outputs.dtype, outputs.device)
    columns = min(COMBINED, max(128, next_power_of_2(width)))
    tensors = (None, None) if shared is None else (shared.out, shared.gate)
    strides = (0, 0) if shared is None else (shared.out.stride(0), shared.gate.stride(0))
    launch.launch(
        _combine, (count, cdiv(width, columns)), (outputs, places, weights, *tensors, out, width, *strides),
        top_k=top_k, columns=columns, num_warps=4,
    )  # fmt: skip
    return out
