"""The one mean that forgets: of what ended requests wrote, had to compute and took."""

WEIGHT = 0.1  # of the newest


def smoothed(mean: float | None, value: float) -> float:
    """The mean with one value more; the value itself where there was none before."""
    return value if mean is None else mean + WEIGHT * (value - mean)
