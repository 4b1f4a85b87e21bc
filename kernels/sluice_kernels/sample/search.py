"""The draw over the descending scores of a whole row, without sorting it.

The k-th score, the last score within top-p and the drawn score are each the first whose count or weight, summed with all
above, reaches a target. A search finds it in sixteen passes: a pass divides the range of keys that is left into four parts
and keeps the one where the sum reaches the target. Equal scores have equal weights, so the place among them is a division;
lower ids come first.
"""

import triton
import triton.language as tl

from sluice_kernels.sample.weights import LAST, weighed, weight_of


@triton.jit
def _passed(found, whole, target, beyond: tl.constexpr):  # type: ignore[no-untyped-def]
    """Whether the target lies behind parts with this sum. Rounding may leave it just out of reach: then it lies in the last
    part with tokens.
    """
    wide = found.to(tl.float64)
    below = wide <= target if beyond else wide < target
    return below & (found < whole)


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
    low = tl.full([], 0, tl.int32)
    high = limit
    before = tl.full([], 0.0, tl.float64)
    while low < high:
        width = ((high - low) >> 2) + 1
        one = tl.zeros([block], tl.float32)  # the sum of the first part
        two = tl.zeros([block], tl.float32)  # of the first two parts
        three = tl.zeros([block], tl.float32)
        four = tl.zeros([block], tl.float32)
        for start in range(0, vocabulary, block):
            key, weight = weighed(scores, start + lane, vocabulary, largest, temperature, min_p)
            if counting:
                weight = tl.full([block], 1.0, tl.float32)
            weight = tl.where((key >= low) & (key <= high), weight, 0.0)
            one += tl.where(key < low + width, weight, 0.0)
            two += tl.where(key < low + 2 * width, weight, 0.0)
            three += tl.where(key < low + 3 * width, weight, 0.0)
            four += weight
        first, second, third, whole = tl.sum(one, 0), tl.sum(two, 0), tl.sum(three, 0), tl.sum(four, 0)
        left = target - before
        if _passed(third, whole, left, beyond):
            before += third.to(tl.float64)
            low += 3 * width
        elif _passed(second, whole, left, beyond):
            before += second.to(tl.float64)
            low += 2 * width
        elif _passed(first, whole, left, beyond):
            before += first.to(tl.float64)
            low += width
        high = tl.minimum(high, low + width - 1)
    return low, before


@triton.jit
def _sums(scores, vocabulary, largest, temperature, min_p, border, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The weight of all keys below the border, float64, and the number of tokens at the border."""
    lane = tl.arange(0, block)
    total = tl.zeros([block], tl.float64)
    equal = tl.zeros([block], tl.int32)
    for start in range(0, vocabulary, block):
        key, weight = weighed(scores, start + lane, vocabulary, largest, temperature, min_p)
        total += tl.where(key < border, weight, 0.0).to(tl.float64)
        equal += (key == border).to(tl.int32)
    return tl.sum(total, 0), tl.sum(equal, 0)


@triton.jit
def _tied(scores, vocabulary, largest, temperature, key, place, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The column of the place-th token with this key; of the last one if there are fewer."""
    lane = tl.arange(0, block)
    chosen = tl.full([], 0, tl.int32)
    passed = tl.full([], 0, tl.int32)
    for start in range(0, vocabulary, block):
        keys, _ = weighed(scores, start + lane, vocabulary, largest, temperature, 0.0)
        equal = (keys == key).to(tl.int32)
        rank = passed + tl.cumsum(equal, 0) - 1
        chosen = tl.maximum(chosen, tl.max(tl.where((equal != 0) & (rank <= place), start + lane, 0), 0))
        passed += tl.sum(equal, 0)
    return chosen


@triton.jit
def drawn_by_search(  # type: ignore[no-untyped-def]
    scores,
    vocabulary,
    largest,
    temperature,
    min_p,
    top_k,  # 0 for all
    top_p,
    uniform,
    total,  # the weight of all tokens, float64
    block: tl.constexpr,
):
    """The column of the token drawn."""
    limit = tl.full([], LAST, tl.int32)
    ties = tl.full([], 2147483648.0, tl.float64)  # tokens that are kept at the limit
    reach = total
    if top_k > 0:
        wanted = top_k.to(tl.float64)
        limit, above = _search(scores, vocabulary, largest, temperature, min_p, wanted, limit, True, False, block)
        ties = wanted - above
        below, _ = _sums(scores, vocabulary, largest, temperature, min_p, limit, block)
        reach = below + ties * weight_of(limit, min_p).to(tl.float64)
    if top_p < 1.0:
        wanted = top_p * reach
        key, below = _search(scores, vocabulary, largest, temperature, min_p, wanted, limit, False, False, block)
        weight = weight_of(key, min_p).to(tl.float64)
        _, equal = _sums(scores, vocabulary, largest, temperature, min_p, key, block)
        kept = tl.ceil((wanted - below) / tl.where(weight > 0.0, weight, 1.0))
        kept = tl.maximum(tl.minimum(kept, equal.to(tl.float64)), 1.0)
        ties = tl.where(key == limit, tl.minimum(ties, kept), kept)
        limit = key
        reach = below + ties * weight
    wanted = uniform * reach
    key, below = _search(scores, vocabulary, largest, temperature, min_p, wanted, limit, False, True, block)
    weight = weight_of(key, min_p).to(tl.float64)
    place = tl.floor((wanted - below) / tl.where(weight > 0.0, weight, 1.0))
    place = tl.where(key == limit, tl.minimum(place, ties - 1.0), place)
    return _tied(scores, vocabulary, largest, temperature, key, tl.maximum(place, 0.0).to(tl.int32), block)
