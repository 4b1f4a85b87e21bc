"""Rounds of churn, and the server's sizes after each. It needs only what the engine's image has, so that it runs in a pod too."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.soak.churn import Churn

LOOKS: Final = 5  # at a server at rest; the least count of them
BETWEEN: Final = (
    0.5  # seconds from look to look: what a garbage collector or an allocator still has to do ends meanwhile
)

Sizes = dict[str, int]


def churned(
    url: str, workers: int, seconds: float, rounds: int, at_rest: Callable[[], Sizes], say: Callable[[str], object]
) -> tuple[list[Sizes], Counter[int]]:
    """Returns the sizes after each round and how often each status came. `rounds`: that the time is for; a busy machine makes
    fewer, because each waits for the answers of its requests.
    """
    ends = time.monotonic() + seconds
    samples, statuses = list[Sizes](), Counter[int]()
    while (left := ends - time.monotonic()) > 0:
        churn = Churn(url, len(samples), workers)
        asyncio.run(churn.run(min(seconds / rounds, left)))
        statuses += churn.statuses
        samples.append(at_rest())
        shown = ", ".join(f"{name} {value}" for name, value in samples[-1].items())
        say(f"round {len(samples)}: {churn.statuses.total()} answers, {shown}\n")
    return samples, statuses


def least(sizes: Callable[[], Sizes]) -> Sizes:
    """The least of each size in a few looks at a server at rest."""
    looks = []
    for _ in range(LOOKS):
        time.sleep(BETWEEN)
        looks.append(sizes())
    return {name: min(look[name] for look in looks) for name in looks[0]}
