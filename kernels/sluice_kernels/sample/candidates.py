"""The draw over the descending scores of the likeliest tokens, in one pass over the row.

The caller has the largest score of each lane of `block` columns. The k-th largest of these is a threshold that at least k
tokens reach, and few more, because the likeliest tokens are spread over the lanes. The tokens at or above it are gathered
and sorted, and top-k, top-p and the draw are prefix sums of one tile. A row whose candidates do not fit (many equal scores)
or whose nucleus is wider is not served.
"""

import triton
import triton.language as tl

from sluice_kernels.sample.weights import HIDDEN, key_of, weighed, weight_of


@triton.jit
def _kth_largest(best, k):  # type: ignore[no-untyped-def]
    """The k-th largest of float32 [block], found bit by bit. Their bits, made to grow with them, are uint32."""
    bits = best.to(tl.int32, bitcast=True)
    ordered = (bits ^ ((bits >> 31) | -0x80000000)).to(tl.uint32, bitcast=True)
    found = tl.full([], 0, tl.uint32)
    bit = tl.full([], 0x80000000, tl.uint32)
    for _ in range(32):
        reached = tl.sum((ordered >= (found | bit)).to(tl.int32), 0)
        found = tl.where(reached >= k, found | bit, found)
        bit = bit >> 1
    back = found.to(tl.int32, bitcast=True)
    return (back ^ (((back ^ -1) >> 31) | -0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def _gathered(  # type: ignore[no-untyped-def]
    scores,
    memory,  # [room] int32
    vocabulary,
    largest,
    temperature,
    min_p,
    border,
    block: tl.constexpr,
    room: tl.constexpr,
):
    """Writes the columns of the tokens with a weight and a key up to the border, as far as there is room. Returns their
    number and the weight of all tokens, float64.
    """
    lane = tl.arange(0, block)
    count = tl.full([], 0, tl.int32)
    total = tl.zeros([block], tl.float64)
    for start in tl.range(0, vocabulary, block, num_stages=3):
        column = start + lane
        key, weight = weighed(scores, column, vocabulary, largest, temperature, min_p)
        total += weight.to(tl.float64)
        taken = ((key <= border) & (weight > 0.0)).to(tl.int32)
        place = tl.where(taken != 0, count + tl.cumsum(taken, 0) - 1, room)
        tl.store(memory + place, column, mask=place < room)
        count += tl.sum(taken, 0)
    return count, tl.sum(total, 0)


@triton.jit
def _sorted(items, count, room: tl.constexpr):  # type: ignore[no-untyped-def]
    """A bitonic sort (Batcher, 1968) of int64 [room], whose items from `count` on are the largest."""
    index = tl.arange(0, room)
    size = tl.full([], 2, tl.int32)
    while size < 2 * count:
        distance = size >> 1
        while distance > 0:
            other = tl.gather(items, index ^ distance, 0)
            lower = ((index & distance) == 0) == ((index & size) == 0)
            items = tl.where(lower, tl.minimum(items, other), tl.maximum(items, other))
            distance = distance >> 1
        size = size << 1
    return items


@triton.jit
def _drawn(items, count, least, total, min_p, top_k, top_p, uniform, room: tl.constexpr):  # type: ignore[no-untyped-def]
    """The column of the token drawn from the sorted candidates; −1 if other tokens are within top-k and top-p. `least`:
    fewer candidates are all tokens that have a weight.
    """
    index = tl.arange(0, room)
    kept = tl.where(top_k > 0, tl.minimum(top_k, count), count)
    weight = tl.where(index < kept, weight_of((items >> 32).to(tl.int32), min_p), 0.0).to(tl.float64)
    cumulative = tl.cumsum(weight, 0)
    mass = tl.sum(weight, 0)
    whole = count < least
    wanted = top_p * tl.where((top_k > 0) | whole, mass, total)
    within = (weight > 0.0) & ((cumulative - weight < wanted) | (index == 0))
    target = uniform * tl.max(tl.where(within, cumulative, 0.0), 0)
    last = tl.max(tl.where(within, index, 0), 0)
    place = tl.min(tl.where(within & (cumulative > target), index, last), 0)
    column = tl.sum(tl.where(index == place, items & 0xFFFFFFFF, 0), 0).to(tl.int32)
    served = (wanted <= mass) & (whole | (top_k <= count))
    return tl.where(served, column, -1)


@triton.jit
def drawn_from_candidates(  # type: ignore[no-untyped-def]
    scores,
    memory,  # [room] int32
    best,  # [block] float32, the largest score of each lane
    vocabulary,
    largest,
    temperature,
    min_p,
    top_k,  # 0 for all
    top_p,
    uniform,
    block: tl.constexpr,
    room: tl.constexpr,
    likeliest: tl.constexpr,
):
    """The column of the token drawn, or −1 if more than the candidates are needed, and the weight of all tokens."""
    least = tl.where((top_k > 0) & (top_k < likeliest), top_k, likeliest)
    border = key_of(_kth_largest(best, least), largest, temperature)
    count, total = _gathered(scores, memory, vocabulary, largest, temperature, min_p, border, block, room)
    tl.debug_barrier()  # other threads load what these have stored
    chosen = tl.full([], -1, tl.int32)
    if count <= room:
        index = tl.arange(0, room)
        column = tl.load(memory + index, mask=index < count, other=0)
        score = tl.load(scores + column, mask=index < count, other=-float("inf")).to(tl.float32)
        key = tl.where(index < count, key_of(score, largest, temperature), HIDDEN)
        items = _sorted((key.to(tl.int64) << 32) | column, count, room)
        chosen = _drawn(items, count, least, total, min_p, top_k, top_p, uniform, room)
    return chosen, total
