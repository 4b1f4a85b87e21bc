"""The engine's random numbers in Triton: a pure function of seed and position."""

import triton
import triton.language as tl


@triton.jit
def _mixed(value):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64 (Steele et al., 2014), on uint64."""
    value += tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    value = (value ^ (value >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
    value = (value ^ (value >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)
    return value ^ (value >> 31)


@triton.jit
def uniform(seed, position):  # type: ignore[no-untyped-def]
    """In [0, 1), float64."""
    steps = position.to(tl.uint64) * tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    bits = _mixed(_mixed(seed.to(tl.uint64)) + steps) >> 11
    return bits.to(tl.int64).to(tl.float64) * 1.1102230246251565e-16  # 2⁻⁵³
