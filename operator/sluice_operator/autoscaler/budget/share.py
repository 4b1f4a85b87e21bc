"""Divides a budget of accelerators among deployments: least replicas by priority, then the largest gain per accelerator.

It grants one replica after the other in a fixed order, and passes over those that do not fit into what is left:

1. the first `least` replicas of each deployment: higher priority first; in one priority the first replica of each
   before the second of any;
2. the others: higher priority first; in one priority the largest gain per accelerator, where a replica in force counts
   `budget_keep_factor` times its gain plus `budget_keep_rate`, because a replica that moves costs a cold start.

The gains are the slopes of the concave envelope of the predictions, for which this greedy order is optimal up to what
does not fit (Fox, "Discrete optimization via marginal analysis", Management Science 13, 1966).
"""

import math
from collections.abc import Sequence
from typing import Final

from sluice_operator.autoscaler.budget.values import Want
from sluice_operator.autoscaler.settings import LAW

_LEAST: Final = 0
_BEYOND: Final = 1

_Rank = tuple[int, int, float, bool, str, int]


def share(budget: int, wants: Sequence[Want]) -> dict[str, int]:
    """Return the replicas per name: at most `budget` accelerators together, and at most `count` each.

    With equal `each`, a larger budget lowers no count. With different ones, what is left may fit only a small replica
    that a larger budget gives to a large one; then the first class of replicas that differs gains by it.
    """
    if sum(want.each * want.count for want in wants) <= budget:
        return {want.name: want.count for want in wants}
    granted = {want.name: 0 for want in wants}
    left = budget
    ranked = [(rank, want) for want in wants for rank in _ranks(want)]
    for _, want in sorted(ranked, key=lambda one: one[0]):
        if want.each <= left:
            left -= want.each
            granted[want.name] += 1
    return granted


def envelope(gains: Sequence[float]) -> tuple[float, ...]:
    """Return the slopes of the least concave function above the sums of `gains`: where a later gain is larger than an
    earlier one, both become their mean. Replicas that serve the load only together count the same."""
    pools: list[tuple[float, int]] = []  # (mean, length)
    for gain in gains:
        mean, length = gain, 1
        while pools and pools[-1][0] < mean:
            before, count = pools.pop()
            mean = (before * count + mean * length) / (count + length)
            length += count
        pools.append((mean, length))
    return tuple(mean for mean, length in pools for _ in range(length))


def worth(want: Want) -> tuple[float, ...]:
    """Return what each of `count` replicas is worth, in requests per second and accelerator, non-increasing.

    Without a prediction, replicas in force are worth more than any other of the priority, and further ones nothing:
    missing metrics must neither stop replicas that serve nor order new ones.
    """
    if want.gains is None:
        return tuple(math.inf if place < want.current else 0.0 for place in range(want.count))
    gains = envelope(want.gains)
    kept = [LAW.budget_keep_factor * gain + LAW.budget_keep_rate for gain in gains[: want.current]]
    return tuple(gain / want.each for gain in (*kept, *gains[want.current :]))


def _ranks(want: Want) -> list[_Rank]:
    """The place of each replica in the order; name and index make it unique."""
    ranks: list[_Rank] = []
    for place, value in enumerate(worth(want)):
        is_new = place >= want.current
        if place < want.least:
            ranks.append((_LEAST, -want.priority, place, is_new, want.name, place))
        else:
            ranks.append((_BEYOND, -want.priority, -value, is_new, want.name, place))
    return ranks
