"""Moving windows of one number, as points (time in seconds, value), oldest first."""

import math
from statistics import fmean

Points = tuple[tuple[float, float], ...]


def add(points: Points, at: float, value: float, seconds: float) -> Points:
    """Append a point and drop the points that are `seconds` old or older."""
    return (*(point for point in points if at - seconds < point[0] <= at), (at, value))


def since(points: Points, now: float, seconds: float) -> tuple[float, ...]:
    """The values of the last `seconds`."""
    return tuple(value for at, value in points if now - seconds < at <= now)


def mean(points: Points, now: float, seconds: float) -> float | None:
    """Prometheus's avg_over_time; None without a point."""
    values = since(points, now, seconds)
    return fmean(values) if values else None


def most(points: Points, now: float, seconds: float) -> float:
    """Prometheus's max_over_time; -inf without a point."""
    return max(since(points, now, seconds), default=-math.inf)
