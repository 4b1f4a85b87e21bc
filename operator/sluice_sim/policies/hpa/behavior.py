"""The scaling behavior of the Horizontal Pod Autoscaler: sync period, stabilisation windows and scaling policies.

Source: Kubernetes documentation, "Horizontal Pod Autoscaling", configurable scaling behavior. A scale-down takes the
highest recommendation of its window, a scale-up the lowest of its own. Policies bound the change relative to the count
at the start of their period, and the most permissive policy applies. The loop runs every 15 s.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

PERIOD: Final = 15.0  # seconds


@dataclass(frozen=True, slots=True)
class Policy:
    """Change by at most `value` pods, or per cent of the pods, in any `seconds`."""

    kind: Literal["Pods", "Percent"]
    value: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Behavior:
    """HPA behavior, with the defaults of autoscaling/v2. Windows in seconds."""

    up_window: float = 0.0
    down_window: float = 300.0
    up: tuple[Policy, ...] = (Policy("Percent", 100, 15), Policy("Pods", 4, 15))
    down: tuple[Policy, ...] = (Policy("Percent", 100, 15),)


@dataclass(frozen=True, slots=True)
class HpaMemory:
    """The state of one HorizontalPodAutoscaler: time of the next sync, recommendations (time, count), and moves."""

    next_at: float = -math.inf
    recommended: tuple[tuple[float, int], ...] = ()
    moves: tuple[tuple[float, int], ...] = ()  # (time, pods added; negative: removed)


DEFAULT: Final = Behavior()


def due(memory: HpaMemory, now: float) -> bool:
    """True if the sync period has passed."""
    return now >= memory.next_at - 1e-9


def settle(
    memory: HpaMemory, behavior: Behavior, current: int, recommended: int | None, bounds: tuple[int, int], now: float
) -> tuple[int, HpaMemory]:
    """The replicas that follow from a recommendation now, and the next memory.

    With None (no metric could be read) the count only moves into `bounds`."""
    low, high = bounds
    memory = replace(memory, next_at=now + PERIOD, recommended=memory.recommended or ((now, current),))
    if not low <= current <= high:
        wanted = min(max(current, low), high)
    elif recommended is None:
        return current, memory
    else:
        memory = _remember(memory, behavior, recommended, now)
        wanted = _stable(memory, behavior, current, recommended, now)
        wanted = min(max(_limited(memory, behavior, current, wanted, now), low), high)
    if wanted != current:
        longest = max(policy.seconds for policy in (*behavior.up, *behavior.down))
        moves = tuple(move for move in memory.moves if now - longest < move[0])
        memory = replace(memory, moves=(*moves, (now, wanted - current)))
    return wanted, memory


def _remember(memory: HpaMemory, behavior: Behavior, recommended: int, now: float) -> HpaMemory:
    longest = max(behavior.up_window, behavior.down_window)
    kept = tuple(entry for entry in memory.recommended if now - longest < entry[0])
    return replace(memory, recommended=(*kept, (now, recommended)))


def _stable(memory: HpaMemory, behavior: Behavior, current: int, recommended: int, now: float) -> int:
    """Stabilise: at most the lowest recommendation of the up window, at least the highest of the down window."""
    least = min((n for at, n in memory.recommended if now - behavior.up_window < at), default=recommended)
    most = max((n for at, n in memory.recommended if now - behavior.down_window < at), default=recommended)
    least, most = min(least, recommended), max(most, recommended)
    return most if current > most else max(current, least)


def _limited(memory: HpaMemory, behavior: Behavior, current: int, wanted: int, now: float) -> int:
    if wanted > current:
        return min(wanted, max(current, _bound(memory, behavior.up, current, +1, now, max)))
    if wanted < current:
        return max(wanted, min(current, _bound(memory, behavior.down, current, -1, now, min)))
    return wanted


def _bound(
    memory: HpaMemory,
    policies: Iterable[Policy],
    current: int,
    sign: int,
    now: float,
    furthest: Callable[[Iterable[int]], int],
) -> int:
    """The furthest count that any policy allows. A percentage is rounded in the direction of the move."""
    return furthest([_allowed(memory, policy, current, sign, now) for policy in policies])


def _allowed(memory: HpaMemory, policy: Policy, current: int, sign: int, now: float) -> int:
    start = current - sum(change for at, change in memory.moves if now - policy.seconds < at)
    if policy.kind == "Pods":
        return start + sign * int(policy.value)
    exact = start * (1.0 + sign * policy.value / 100.0)
    return math.ceil(exact - 1e-9) if sign > 0 else math.floor(exact + 1e-9)
