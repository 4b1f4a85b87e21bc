"""Decode steps that each take a little longer than the one before, since every stream reads one token more."""

import math


def steps_within(first: float, growth: float, seconds: float) -> int:
    """How many steps begin within `seconds`: the least k with k·first + growth·k(k−1)/2 ≥ seconds, at least 1."""
    if seconds <= first:
        return 1
    if growth <= 0:
        return math.ceil(seconds / first)
    half = growth / 2.0
    linear = first - half
    return math.ceil((math.sqrt(linear * linear + 4.0 * half * seconds) - linear) / (2.0 * half))
