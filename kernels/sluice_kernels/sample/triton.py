"""Sampling in Triton without sorting the vocabulary, one program per row.

With top-k or top-p a token is drawn by its place in the descending scores. The k-th score, the last score within top-p
and the drawn score are each the first whose count or weight, summed with all above, reaches a target. A radix search
finds it in eight passes: a pass sums 16 bins, the next four bits of the scaled score, among the scores that share the
bits found so far. Equal scores have equal weights, so the place among them is a division; lower ids come first.
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.sample.adjust import adjusted
from sluice_kernels.sample.configs import BLOCK, WARPS
from sluice_kernels.sample.reference import Bias, Draws, Penalties, Rows

_HIDDEN = tl.constexpr(0x7FFFFFFF)  # the key of no token
_LAST = tl.constexpr(0x7F800000)  # the key of −∞


@triton.jit
def _mixed(value):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64 (Steele et al., 2014), on uint64."""
    value += tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    value = (value ^ (value >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
    value = (value ^ (value >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)
    return value ^ (value >> 31)


@triton.jit
def _uniform(seed, position):  # type: ignore[no-untyped-def]
    """In [0, 1), float64."""
    steps = position.to(tl.uint64) * tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    bits = _mixed(_mixed(seed.to(tl.uint64)) + steps) >> 11
    return bits.to(tl.int64).to(tl.float64) * 1.1102230246251565e-16  # 2⁻⁵³


@triton.jit
def _largest(scores, vocabulary, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest score of a row, its lowest column, and how many scores are NaN."""
    lane = tl.arange(0, block)
    best = tl.full([block], -float("inf"), tl.float32)
    place = lane
    bad = tl.zeros([block], tl.int32)
    for start in range(0, vocabulary, block):
        score = tl.load(scores + start + lane, mask=start + lane < vocabulary, other=-float("inf")).to(tl.float32)
        bad += (score != score).to(tl.int32)  # noqa: PLR0124 - NaN differs from itself
        place = tl.where(score > best, start + lane, place)
        best = tl.where(score > best, score, best)
    largest = tl.max(best, 0)
    return largest, tl.min(tl.where(best == largest, place, 0x7FFFFFFF), 0), tl.sum(bad, 0)


@triton.jit
def _weighed(scores, column, vocabulary, largest, temperature, min_p):  # type: ignore[no-untyped-def]
    """The keys of a tile, which grow as scores fall, and their weights: e^(scaled score), 0 below min-p."""
    score = tl.load(scores + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
    scaled = tl.div_rn(score - largest, temperature)
    weight = tl.exp(scaled)
    weight = tl.where(weight < min_p, 0.0, weight)
    key = (0.0 - scaled).to(tl.int32, bitcast=True)  # bits of floats that are not negative grow with them
    return tl.where(column < vocabulary, key, _HIDDEN), weight


@triton.jit
def _search(  # type: ignore[no-untyped-def]
    scores,
    vocabulary,
    largest,
    temperature,
    min_p,
    target,  # float64
    limit,  # keys beyond it are not counted
    counting: tl.constexpr,  # sums of tokens, else of weights
    beyond: tl.constexpr,  # the sum must exceed the target, else reach it
    block: tl.constexpr,
):
    """The first key whose sum, with all lower keys, reaches the target (else the last key), and the sum below it."""
    lane = tl.arange(0, block)
    bins = tl.arange(0, 16)
    prefix = tl.full([], 0, tl.int32)
    before = tl.full([], 0.0, tl.float64)
    for step in range(8):
        shift = 28 - 4 * step
        sums = tl.zeros([block, 16], tl.float32)
        for start in range(0, vocabulary, block):
            key, weight = _weighed(scores, start + lane, vocabulary, largest, temperature, min_p)
            if counting:
                weight = tl.full([block], 1.0, tl.float32)
            weight = tl.where((((key >> shift) >> 4) == prefix) & (key <= limit), weight, 0.0)
            sums += tl.where(((key >> shift) & 15)[:, None] == bins[None, :], weight[:, None], 0.0)
        found = tl.sum(sums, 0).to(tl.float64)
        reached = before + tl.cumsum(found, 0)
        if beyond:
            first = tl.min(tl.where(reached > target, bins, 16), 0)
        else:
            first = tl.min(tl.where(reached >= target, bins, 16), 0)
        # Rounding may leave a target just out of reach: then the last bin with tokens.
        first = tl.where(first == 16, tl.max(tl.where(found > 0.0, bins, 0), 0), first)
        before += tl.sum(tl.where(bins < first, found, 0.0), 0)
        prefix = prefix * 16 + first
    return prefix, before


@triton.jit
def _weight_of(key, min_p):  # type: ignore[no-untyped-def]
    """The weight of a key, float64."""
    weight = tl.exp(0.0 - key.to(tl.float32, bitcast=True))
    return tl.where(weight < min_p, 0.0, weight).to(tl.float64)


@triton.jit
def _sums(scores, vocabulary, largest, temperature, min_p, border, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The weight of all keys below the border, float64, and the number of tokens at the border."""
    lane = tl.arange(0, block)
    total = tl.zeros([block], tl.float64)
    equal = tl.zeros([block], tl.int32)
    for start in range(0, vocabulary, block):
        key, weight = _weighed(scores, start + lane, vocabulary, largest, temperature, min_p)
        total += tl.where(key < border, weight, 0.0).to(tl.float64)
        equal += (key == border).to(tl.int32)
    return tl.sum(total, 0), tl.sum(equal, 0)


@triton.jit
def _truncated(  # type: ignore[no-untyped-def]
    scores, vocabulary, largest, temperature, min_p, top_k, top_p, uniform, total, block: tl.constexpr
):
    """A draw over the descending scores."""
    limit = tl.full([], _LAST, tl.int32)
    ties = tl.full([], 2147483648.0, tl.float64)  # tokens that are kept at the limit
    reach = total
    if (top_k > 0) & (top_k < vocabulary):
        wanted = top_k.to(tl.float64)
        limit, above = _search(scores, vocabulary, largest, temperature, min_p, wanted, limit, True, False, block)
        ties = wanted - above
        below, _ = _sums(scores, vocabulary, largest, temperature, min_p, limit, block)
        reach = below + ties * _weight_of(limit, min_p)
    if top_p < 1.0:
        wanted = top_p * reach
        key, below = _search(scores, vocabulary, largest, temperature, min_p, wanted, limit, False, False, block)
        weight = _weight_of(key, min_p)
        _, equal = _sums(scores, vocabulary, largest, temperature, min_p, key, block)
        kept = tl.ceil((wanted - below) / tl.where(weight > 0.0, weight, 1.0))
        kept = tl.maximum(tl.minimum(kept, equal.to(tl.float64)), 1.0)
        ties = tl.where(key == limit, tl.minimum(ties, kept), kept)
        limit = key
        reach = below + ties * weight
    wanted = uniform * reach
    key, below = _search(scores, vocabulary, largest, temperature, min_p, wanted, limit, False, True, block)
    weight = _weight_of(key, min_p)
    place = tl.floor((wanted - below) / tl.where(weight > 0.0, weight, 1.0))
    place = tl.where(key == limit, tl.minimum(place, ties - 1.0), place)
    return _tied(scores, vocabulary, largest, temperature, key, tl.maximum(place, 0.0).to(tl.int32), block)


@triton.jit
def _tied(scores, vocabulary, largest, temperature, key, place, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The column of the place-th token with this key; of the last one if there are fewer."""
    lane = tl.arange(0, block)
    chosen = tl.full([], 0, tl.int32)
    passed = tl.full([], 0, tl.int32)
    for start in range(0, vocabulary, block):
        keys, _ = _weighed(scores, start + lane, vocabulary, largest, temperature, 0.0)
        equal = (keys == key).to(tl.int32)
        rank = passed + tl.cumsum(equal, 0) - 1
        chosen = tl.maximum(chosen, tl.max(tl.where((equal != 0) & (rank <= place), start + lane, 0), 0))
        passed += tl.sum(equal, 0)
    return chosen


@triton.jit
def _by_id(scores, vocabulary, largest, temperature, min_p, target, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first column whose weight, summed with all before, exceeds the target; the last with a weight if none does."""
    lane = tl.arange(0, block)
    chosen = tl.full([], 0, tl.int32)
    done = tl.full([], 0, tl.int32)
    passed = tl.full([], 0.0, tl.float64)
    for start in range(0, vocabulary, block):
        _, weight = _weighed(scores, start + lane, vocabulary, largest, temperature, min_p)
        wide = weight.to(tl.float64)
        beyond = (passed + tl.cumsum(wide, 0) > target) & (weight > 0.0)
        first = tl.min(tl.where(beyond, start + lane, 0x7FFFFFFF), 0)
        last = tl.max(tl.where(weight > 0.0, start + lane, 0), 0)
        chosen = tl.where(done != 0, chosen, tl.where(first < 0x7FFFFFFF, first, tl.maximum(chosen, last)))
        done = tl.where(first < 0x7FFFFFFF, 1, done)
        passed += tl.sum(wide, 0)
    return chosen


@triton.jit
def _choose(  # type: ignore[no-untyped-def]
    scores,  # [rows, vocabulary]
    tokens,  # [rows] int64
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
):
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    largest, chosen, bad = _largest(scores, vocabulary, block)
    if (bad > 0) | (tl.abs(largest) == float("inf")):
        tl.store(tokens + row, tl.full([], -1, tl.int64))
        return
    slot = tl.load(slots + row).to(tl.int64)
    temperature = tl.load(temperatures + slot)
    if temperature >= 1e-5:
        min_p = tl.load(min_ps + slot)
        top_k = tl.load(top_ks + slot)
        top_p = tl.load(top_ps + slot)
        uniform = _uniform(tl.load(seeds + slot), tl.load(positions + row))
        total, _ = _sums(scores, vocabulary, largest, temperature, min_p, _LAST, block)
        if (top_k > 0) | (top_p < 1.0):
            chosen = _truncated(
                scores, vocabulary, largest, temperature, min_p, top_k, top_p, uniform, total, block
            )  # fmt: skip
        else:
            chosen = _by_id(scores, vocabulary, largest, temperature, min_p, uniform * total, block)
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
    launch.launch(
        _choose, (count,),
        (
            scores, tokens, rows.slots, rows.positions,
            draws.temperature, draws.min_p, draws.top_k, draws.top_p, draws.seeds, scores.stride(0), vocabulary,
        ),
        block=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return tokens
