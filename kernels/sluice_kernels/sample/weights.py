"""The keys and weights of tokens, which all draws share.

The scaled score of a token is (score − largest) / temperature, never positive. Its weight is e to that power, or 0 below
min-p. Its key is the bits of the negated scaled score, so keys are int32 that grow as scores fall.
"""

import triton
import triton.language as tl

HIDDEN = tl.constexpr(0x7FFFFFFF)  # the key of no token
LAST = tl.constexpr(0x7F800000)  # the key of −∞


@triton.jit
def key_of(score, largest, temperature):  # type: ignore[no-untyped-def]
    """The key of a score."""
    return (0.0 - tl.div_rn(score - largest, temperature)).to(tl.int32, bitcast=True)


@triton.jit
def weight_of(key, min_p):  # type: ignore[no-untyped-def]
    """The weight of a key, float32."""
    weight = tl.exp(0.0 - key.to(tl.float32, bitcast=True))
    return tl.where(weight < min_p, 0.0, weight)


@triton.jit
def weighed(scores, column, vocabulary, largest, temperature, min_p):  # type: ignore[no-untyped-def]
    """The keys and weights of a tile."""
    score = tl.load(scores + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
    key = key_of(score, largest, temperature)
    return tl.where(column < vocabulary, key, HIDDEN), weight_of(key, min_p)
