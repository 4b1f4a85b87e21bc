"""Exponential smoothing, for means over finished requests."""

WEIGHT = 0.1  # of the newest


def smoothed(mean: float | None, value: float) -> float:
    """The mean with one more value; the value itself where it is the first."""
    return value if mean is None else mean + WEIGHT * (value - mean)
