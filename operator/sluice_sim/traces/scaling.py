"""Scales a load: up by superposed copies with shifted arrivals, down by random thinning.

Copies share no prompt content with one another: prefixes are shared within each copy only.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sluice_sim.traces.arrival import Arrival

JITTER_SECONDS: Final = 10.0  # so that copies do not arrive as batches


def scaled(arrivals: Sequence[Arrival], factor: float, seed: int) -> tuple[Arrival, ...]:
    """`factor` times the load, in order of time.

    It consists of whole copies, and of one more copy thinned at random to the remaining fraction. Each request of all
    copies but the first is delayed by U(0, 10 s). Raises ValueError for a factor that is not above 0."""
    if not factor > 0:
        raise ValueError(f"a load is scaled by a number above 0, not by {factor}")
    rng = random.Random(f"{seed}/scale")
    whole = int(factor)
    stride = 1 + max((block for one in arrivals for block in one.blocks), default=0)
    found = list(arrivals) if whole else []
    for copy in range(1, whole):
        found += [_copy(one, copy, stride, rng) for one in arrivals]
    if factor > whole:
        kept = [one for one in arrivals if rng.random() < factor - whole]
        found += [_copy(one, whole, stride, rng) for one in kept] if whole else kept
    return tuple(sorted(found, key=lambda one: one.at))


def labelled(
    arrivals: Sequence[Arrival], high: float, priority: int, tenants: Mapping[str, float], seed: int
) -> tuple[Arrival, ...]:
    """Assign `priority` to a random share `high` of the requests (0 to the others), and a tenant to each by weight."""
    rng = random.Random(f"{seed}/labels")
    names, weights = tuple(tenants), tuple(tenants.values())
    return tuple(
        replace(one, priority=priority if rng.random() < high else 0, tenant=rng.choices(names, weights)[0])
        for one in arrivals
    )


def _copy(one: Arrival, copy: int, stride: int, rng: random.Random) -> Arrival:
    blocks = tuple(block + copy * stride for block in one.blocks)
    return replace(one, at=one.at + JITTER_SECONDS * rng.random(), blocks=blocks)
