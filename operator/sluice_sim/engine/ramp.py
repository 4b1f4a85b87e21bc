"""Durations of consecutive decode steps. Each step is longer than the last: every sequence reads one more KV token."""

import math


def steps_within(first: float, growth: float, seconds: float) -> int:
    """Number of steps that begin within `seconds`: the least k with k·first + growth·k(k−1)/2 ≥ seconds, at least 1.

    `first` is the duration of the first step and `growth` the increment per step, both in seconds."""
    if seconds <= first:
        return 1
    if growth <= 0:
        return math.ceil(seconds / first)
    half = growth / 2.0
    linear = first - half
    return math.ceil((math.sqrt(linear * linear + 4.0 * half * seconds) - linear) / (2.0 * half))
