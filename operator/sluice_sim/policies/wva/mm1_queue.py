"""The finite M/M/1 queue with a state-dependent service rate, as a model of an engine's batch.

Source: llm-d-workload-variant-autoscaler, pkg/analyzer (state-dependent M/M/1 with a bounded queue; binary search for
the largest rate that meets mean targets). State n ≤ N serves at μ(n), a state above N at μ(N), and N + Q is the last
state. The probabilities are p(n) ∝ Π λ/μ(k). Above N they have the constant ratio λ/μ(N), so that part is summed in
closed form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

EPSILON: Final = 0.001  # the rate is searched in [EPSILON·μ(1), (1 − EPSILON)·μ(N)]
STEPS: Final = 60  # bisection steps: to the precision of a double


@dataclass(frozen=True, slots=True)
class Steady:
    """Means in the steady state: requests in service, requests per second, seconds of service and of waiting."""

    serving: float
    throughput: float
    service: float
    wait: float


def solve(rate: float, served: Sequence[float], queue: int) -> Steady:
    """The steady state at an arrival `rate` (per second). `served` [N] holds μ(n) per second; `queue` is Q. O(N)."""
    weights = [1.0]
    for mu in served:
        weights.append(weights[-1] * rate / mu)
        if weights[-1] > 1e200:
            weights = [weight * 1e-200 for weight in weights]
    batch, last = len(served), weights[-1]
    ratio = rate / served[-1]
    tail, weighted = _geometric(ratio, queue)
    total = sum(weights) + last * tail
    inside = sum(n * weight for n, weight in enumerate(weights))
    serving = (inside + batch * last * tail) / total
    everyone = (inside + last * (batch * tail + weighted)) / total
    lost = last * ratio**queue / total
    throughput = rate * (1.0 - lost)
    service = serving / throughput
    return Steady(serving, throughput, service, max(0.0, everyone / throughput - service))


def largest(low: float, high: float, target: float, value: Callable[[float], float]) -> float | None:
    """The largest rate in [low, high] with `value(rate)` ≤ `target`, by bisection; None if value(low) exceeds it.

    `value` must be non-decreasing."""
    if value(low) > target:
        return None
    if value(high) <= target:
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        if value(middle) <= target:
            low = middle
        else:
            high = middle
    return low


def _geometric(ratio: float, terms: int) -> tuple[float, float]:
    """Σ ratio^k and Σ k·ratio^k for k = 1…terms."""
    if abs(1.0 - ratio) < 1e-9:
        return float(terms), terms * (terms + 1) / 2.0
    power = ratio**terms
    total = ratio * (1.0 - power) / (1.0 - ratio)
    return total, (total - terms * power * ratio) / (1.0 - ratio)
