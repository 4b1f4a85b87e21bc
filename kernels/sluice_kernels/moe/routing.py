"""Routing and alignment in Triton. No count leaves the device: grids and sizes follow from the shapes alone.

The alignment is a stable counting sort. One launch counts the experts of each chunk of pairs; in the next, each program adds
the counts of all chunks, and so knows where its own chunk's pairs begin. One chunk needs no first launch.
"""

from typing import Final

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.integers import cdiv, next_power_of_2
from sluice_kernels.moe.reference import SMALLEST_SUM, Alignment, Routing, RoutingRule, tile_count
from sluice_kernels.tiles import sigmoid

CHUNK: Final = 256  # pairs per program
AT_ONCE: Final = 16  # chunks, tiles
COMPARED: Final = 32  # pairs that a chunk is compared with at once
LEAST_BINS: Final = 32  # one per thread of a warp
SCORES: Final = 1024  # elements per program of the routing


@triton.jit(do_not_specialize=["row_count"])
def _route(  # type: ignore[no-untyped-def]
    logits,  # [rows, count]
    experts,  # [rows, top_k] int32
    weights,  # [rows, top_k] float32
    row_count,
    stride,
    count: tl.constexpr,
    top_k: tl.constexpr,
    by_sigmoid: tl.constexpr,
    renormalise: tl.constexpr,
    smallest_sum: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
    choices: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column, choice = tl.arange(0, block), tl.arange(0, choices)
    used, inside = row < row_count, column < count
    mask = used[:, None] & inside[None, :]
    values = tl.load(logits + row[:, None] * stride + column[None, :], mask=mask, other=-float("inf")).to(tl.float32)
    # A maximum drops NaN on a GPU; here NaN is the largest.
    keys = tl.where(values == values, values, float("inf"))  # noqa: PLR0124
    if by_sigmoid:
        scores = sigmoid(values)
    else:
        powers = tl.exp(values - tl.max(keys, 1)[:, None])
        powers = tl.where(inside[None, :], powers, 0.0)
        scores = powers / tl.sum(powers, 1)[:, None]
    free = tl.broadcast_to(inside[None, :], (rows, block))
    chosen = tl.zeros([rows, choices], tl.int32)
    kept = tl.zeros([rows, choices], tl.float32)
    for number in tl.static_range(top_k):
        best = tl.max(tl.where(free, keys, -float("inf")), 1)
        first = tl.min(tl.where(free & (keys == best[:, None]), column[None, :], block), 1)
        picked = column[None, :] == first[:, None]
        score = tl.sum(tl.where(picked, scores, 0.0), 1)
        here = choice[None, :] == number
        chosen = tl.where(here, first[:, None], chosen)
        kept = tl.where(here, score[:, None], kept)
        free = free & (column[None, :] != first[:, None])
    if renormalise:
        kept = kept / (tl.sum(kept, 1) + smallest_sum)[:, None]
    place = row[:, None] * top_k + choice[None, :]
    stored = used[:, None] & (choice < top_k)[None, :]
    tl.store(experts + place, chosen, mask=stored)
    tl.store(weights + place, kept, mask=stored)


@triton.jit(do_not_specialize=["pairs"])
def _count_experts(  # type: ignore[no-untyped-def]
    experts,  # [pairs] int32
    counts,  # [chunks, bins] int32
    pairs,
    chunk: tl.constexpr,
    bins: tl.constexpr,
):
    pair = tl.program_id(0) * chunk + tl.arange(0, chunk)
    inside = pair < pairs
    expert = tl.load(experts + pair, mask=inside, other=0)
    found = tl.histogram(expert, bins, mask=inside)
    tl.store(counts + tl.program_id(0) * bins + tl.arange(0, bins), found)


@triton.jit(do_not_specialize=["pairs", "chunks", "tiles", "tiles_per_program", "tile"])
def _place_pairs(  # type: ignore[no-untyped-def]
    experts,  # [pairs] int32
    counts,  # [chunks, bins] int32; None: one chunk
    order,  # [tiles · tile] int32
    places,  # [pairs] int32
    tile_experts,  # [tiles] int32
    ends,  # [expert_count] int32
    pairs,
    chunks,
    tiles,
    tiles_per_program,
    tile,
    expert_count: tl.constexpr,
    chunk: tl.constexpr,
    bins: tl.constexpr,
    at_once: tl.constexpr,
    compared: tl.constexpr,
):
    own = tl.program_id(0)
    index, column = tl.arange(0, chunk), tl.arange(0, bins)
    pair = own * chunk + index
    inside = pair < pairs
    expert = tl.load(experts + pair, mask=inside, other=0)
    before = tl.zeros([bins], tl.int32)
    if counts is None:
        total = tl.histogram(expert, bins, mask=inside)
    else:
        total = tl.zeros([bins], tl.int32)
        for start in range(0, chunks, at_once):
            number = start + tl.arange(0, at_once)
            place = counts + number[:, None] * bins + column[None, :]
            found = tl.load(place, mask=(number < chunks)[:, None], other=0)
            total += tl.sum(found, 0)
            before += tl.sum(tl.where((number < own)[:, None], found, 0), 0)
    padded = (total + tile - 1) // tile * tile
    stop = tl.cumsum(padded, 0)
    begin = stop - padded

    rank = tl.zeros([chunk], tl.int32)  # pairs of the same expert before it in its chunk
    for start in range(0, chunk, compared):
        other_index = start + tl.arange(0, compared)
        other_pair = own * chunk + other_index
        other = tl.load(experts + other_pair, mask=other_pair < pairs, other=-1)
        earlier = (other[None, :] == expert[:, None]) & (other_index[None, :] < index[:, None])
        rank += tl.sum(earlier.to(tl.int32), 1)
    at = tl.gather(begin + before, expert, 0) + rank
    tl.store(places + pair, at, mask=inside)
    tl.store(order + at, pair, mask=inside)

    known = column < expert_count
    if own == 0:
        tl.store(ends + column, begin + total, mask=known)
    first = own * tiles_per_program
    last = tl.minimum(first + tiles_per_program, tiles)
    for start in range(first, last, at_once):
        number = start + tl.arange(0, at_once)
        passed = (stop[None, :] <= (number * tile)[:, None]) & known[None, :]
        tl.store(tile_experts + number, tl.sum(passed.to(tl.int32), 1), mask=number < last)


def route_triton(logits: torch.Tensor, rule: RoutingRule) -> Routing:
    """Computes `route_reference`."""
    count, experts = logits.shape
    chosen = launch.empty((count, rule.top_k), torch.int32, logits.device)
    weights = launch.empty((count, rule.top_k), torch.float32, logits.device)
    if count:
        block = next_power_of_2(experts)
        rows = max(1, min(16, SCORES // block))
        launch.launch(
            _route, (cdiv(count, rows),), (logits, chosen, weights, count, logits.stride(0)),
            count=experts, top_k=rule.top_k, by_sigmoid=rule.scoring == "sigmoid", renormalise=rule.renormalise,
            smallest_sum=SMALLEST_SUM, rows=rows, block=block, choices=next_power_of_2(rule.top_k), num_warps=4,
        )  # fmt: skip
    return Routing(chosen, weights)


def align_triton(chosen: torch.Tensor, experts: int, tile: int) -> Alignment:
    """Computes `align_reference` for at least one row."""
    pairs = chosen.numel()
    tiles, chunks = tile_count(pairs, experts, tile), cdiv(pairs, CHUNK)
    bins = max(LEAST_BINS, next_power_of_2(experts))

    def integers(*shape: int) -> torch.Tensor:
        return launch.empty(shape, torch.int32, chosen.device)

    aligned = Alignment(integers(tiles * tile), integers(pairs), integers(tiles), integers(experts))
    counts = None
    if chunks > 1:
        counts = integers(chunks, bins)
        launch.launch(_count_experts, (chunks,), (chosen, counts, pairs), chunk=CHUNK, bins=bins, num_warps=4)
    launch.launch(
        _place_pairs, (chunks,),
        (
            chosen, counts, aligned.order, aligned.places, aligned.tile_experts, aligned.ends,
            pairs, chunks, tiles, cdiv(tiles, chunks), tile,
        ),
        expert_count=experts, chunk=CHUNK, bins=bins, at_once=AT_ONCE, compared=COMPARED, num_warps=8,
    )  # fmt: skip
    return aligned
