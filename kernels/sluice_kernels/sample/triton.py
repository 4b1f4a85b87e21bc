"""Sampling in Triton without sorting the vocabulary, one program per row.

A pass over the row finds the largest score, a second the weights or the candidates of top-k and top-p. Only a row whose
candidates do not hold all that top-k and top-p keep is searched in many passes.
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.sample.adjust import adjusted
from sluice_kernels.sample.candidates import drawn_from_candidates
from sluice_kernels.sample.configs import (
    CANDIDATES,
    DRAW_BLOCK,
    DRAW_WARPS,
    LIKELIEST,
    MOST_VOCABULARY,
)
from sluice_kernels.sample.reference import Bias, Draws, Penalties, Rows
from sluice_kernels.sample.search import drawn_by_search
from sluice_kernels.sample.uniform import uniform
from sluice_kernels.sample.weights import weighed


@triton.jit
def _largest(scores, vocabulary, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest score of each lane and of the row, its lowest column, and how many scores are NaN."""
    lane = tl.arange(0, block)
    best = tl.full([block], -float("inf"), tl.float32)
    place = lane
    bad = tl.zeros([block], tl.int32)
    for start in tl.range(0, vocabulary, block, num_stages=3):
        score = tl.load(scores + start + lane, mask=start + lane < vocabulary, other=-float("inf")).to(tl.float32)
        bad += (score != score).to(tl.int32)  # noqa: PLR0124 - NaN differs from itself
        place = tl.where(score > best, start + lane, place)
        best = tl.where(score > best, score, best)
    largest = tl.max(best, 0)
    return best, largest, tl.min(tl.where(best == largest, place, 0x7FFFFFFF), 0), tl.sum(bad, 0)


@triton.jit
def _drawn_by_id(  # type: ignore[no-untyped-def]
    scores, vocabulary, largest, temperature, min_p, uniform, block: tl.constexpr, tiles: tl.constexpr
):
    """The first column whose weight, summed with all before, exceeds the number drawn. A pass sums the tiles, so that one
    tile alone needs sums by column.
    """
    lane = tl.arange(0, block)
    tile = tl.arange(0, tiles)
    masses = tl.zeros([tiles], tl.float64)
    for start in tl.range(0, vocabulary, block, num_stages=3):
        _, weight = weighed(scores, start + lane, vocabulary, largest, temperature, min_p)
        masses += tl.where(tile == start // block, tl.sum(weight.to(tl.float64), 0), 0.0)
    reached = tl.cumsum(masses, 0)
    target = uniform * tl.max(reached, 0)
    # Rounding may leave the target just out of reach: then the last tile, and the last column, with a weight.
    last = tl.max(tl.where(masses > 0.0, tile, 0), 0)
    found = tl.min(tl.where((reached > target) & (masses > 0.0), tile, last), 0)
    before = tl.sum(tl.where(tile < found, masses, 0.0), 0)
    column = found * block + lane
    _, weight = weighed(scores, column, vocabulary, largest, temperature, min_p)
    beyond = (before + tl.cumsum(weight.to(tl.float64), 0) > target) & (weight > 0.0)
    return tl.min(tl.where(beyond, column, tl.max(tl.where(weight > 0.0, column, 0), 0)), 0)


@triton.jit
def _choose(  # type: ignore[no-untyped-def]
    scores,  # [rows, vocabulary]
    tokens,  # [rows] int64
    memory,  # [rows, room] int32
    slots,  # [rows]
    positions,  # [rows]
    temperatures,  # [slots]
    min_ps,  # [slots]
    top_ks,  # [slots]
    top_ps,  # [slots] float64
    seeds,  # [slots] int64
    stride,
    vocabulary,
    block: tl.constexpr,
    tiles: tl.constexpr,
    room: tl.constexpr,
    likeliest: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    best, largest, chosen, bad = _largest(scores, vocabulary, block)
    if (bad > 0) | (tl.abs(largest) == float("inf")):
        tl.store(tokens + row, tl.full([], -1, tl.int64))
        return
    slot = tl.load(slots + row).to(tl.int64)
    temperature = tl.load(temperatures + slot)
    if temperature >= 1e-5:
        min_p = tl.load(min_ps + slot)
        top_k = tl.load(top_ks + slot)
        top_p = tl.load(top_ps + slot)
        number = uniform(tl.load(seeds + slot), tl.load(positions + row))
        if (top_k > 0) | (top_p < 1.0):
            top_k = tl.where(top_k < vocabulary, top_k, 0)
            chosen, total = drawn_from_candidates(
                scores, memory + row * room, best, vocabulary, largest, temperature, min_p, top_k, top_p, number,
                block, room, likeliest,
            )  # fmt: skip
            if chosen < 0:
                chosen = drawn_by_search(
                    scores, vocabulary, largest, temperature, min_p, top_k, top_p, number, total, block
                )
        else:
            chosen = _drawn_by_id(scores, vocabulary, largest, temperature, min_p, number, block, tiles)
    tl.store(tokens + row, chosen.to(tl.int64))


def sample_triton(
    logits: torch.Tensor, rows: Rows, draws: Draws, penalties: Penalties | None, bias: Bias | None
) -> torch.Tensor:
    """Computes `sample_reference`."""
    count, vocabulary = logits.shape
    tokens = launch.empty((count,), torch.int64, logits.device)
    if count == 0:
        return tokens
    scores = adjusted(logits, rows, penalties, bias)
    memory = launch.empty((count, CANDIDATES), torch.int32, logits.device)
    launch.launch(
        _choose, (count,),
        (
            scores, tokens, memory, rows.slots, rows.positions,
            draws.temperature, draws.min_p, draws.top_k, draws.top_p, draws.seeds, scores.stride(0), vocabulary,
        ),
        block=DRAW_BLOCK, tiles=MOST_VOCABULARY // DRAW_BLOCK, room=CANDIDATES, likeliest=LIKELIEST,
        num_warps=DRAW_WARPS,
    )  # fmt: skip
    return tokens
