"""The next replica count from the needed one, under the rules of scale-out, scale-in and scale to zero.

`step` scales out at once and in after a window, wakes a model that is scaled to zero and scales an idle one to zero.
`remember` keeps the wanted counts of the stabilisation window.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.bounds import ReplicaRange
from sluice_operator.autoscaler.replicas.recommendation import Recommendation, is_idle
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.windows import WINDOW
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Observed

SLOTS: Final = 60  # slots of the stabilisation window in `AutoscalerState.wanted`
HOLD_MOST: Final = 600.0  # seconds: one image pull of half an hour must not hold replicas for as long
WARMING_MOST: Final = 2.0  # extra windows for caches: a user's short window must not become minutes
LOSSES: Final = 2.0  # caches lost per move: the removed replica's is computed again, the new one starts cold


def step(
    spec: LLMDeploymentSpec,
    floor: ReplicaRange,
    seen: Fresh,
    memory: AutoscalerState,
    wanted: Recommendation,
    now: float,
    current: int,
    window: float,
) -> int:
    """The next count inside the range.

    Scale-out is immediate. Scale-in removes one replica at a time, and only after every count wanted in the
    stabilisation window (`window`, from `hold_seconds`) allowed it, with nothing loading and a whole window observed.
    The last replica is removed only after scaleToZeroAfterSeconds without any request.
    """
    current = floor.inside(current)
    if wanted.up > current:
        return min(wanted.up, floor.high)
    most = max((count for _, count in memory.wanted), default=current)
    watched = memory.started_at is not None and now - memory.started_at >= window
    spaced = memory.down_at is None or now - memory.down_at >= min(WINDOW, window)
    if wanted.hold or seen.coming or not watched or not spaced:
        return current
    if current == 1 and floor.low == 0 and memory.idle_since is not None:
        return 0 if now - memory.idle_since >= spec.scaling.scale_to_zero_after_seconds else 1
    return current if most >= current else max(current - 1, floor.low, 1)


def rest(memory: AutoscalerState, observed: Observed, seen: Fresh, now: float) -> AutoscalerState:
    """Note since when the whole fleet is idle: every replica is measured, and the gateway holds no request."""
    idle = bool(seen.known) and not seen.missing and not observed.held and is_idle(seen, memory, now)
    if not idle:
        return memory if memory.idle_since is None else replace(memory, idle_since=None)
    return replace(memory, idle_since=now) if memory.idle_since is None else memory


def remember(
    floor: ReplicaRange, memory: AutoscalerState, wanted: Recommendation, now: float, current: int, window: float
) -> AutoscalerState:
    """Keep the largest wanted count per slot of the stabilisation window; during a hold that is the current count."""
    slot = max(1.0, window / SLOTS)
    count = floor.inside(max(wanted.keep, current if wanted.hold else 0))
    hole = slot + max(WINDOW, 3.0 * (memory.scrape_gap or 0.0))
    if not memory.wanted or now - memory.wanted[-1][0] > hole:
        # The fleet was not observed (another mode, a pause, failed writes): a whole window starts again.
        memory = replace(memory, started_at=now)
    entries = tuple((at, kept) for at, kept in memory.wanted if now - window - slot < at <= now)
    if entries and now - entries[-1][0] < slot:
        entries = (*entries[:-1], (entries[-1][0], max(entries[-1][1], count)))
    else:
        entries = (*entries, (now, count))
    return replace(memory, wanted=entries)


def hold_seconds(spec: LLMDeploymentSpec, memory: AutoscalerState, cold: float) -> float:
    """How long fewer replicas must have been enough before a scale-in, in seconds.

    It is the stabilisation window, and at least the cold start of a replacement. A scale-in and the later scale-out
    also cost the capacity that a cold cache lacks (`cold`, seconds of a replica: `cache_warmth.cold_seconds`), once for
    each. A move made only after waiting for as long as it costs pays at most twice the optimum in hindsight (the
    rent-or-buy rule: Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988). The total is at most three windows.
    """
    back = cold_start.usual(memory)
    window = max(
        float(spec.scaling.scale_down_stabilization_seconds), 0.0 if back is None else min(back.total, HOLD_MOST)
    )
    return window + min(LOSSES * cold, WARMING_MOST * window)


def quiet_seconds(memory: AutoscalerState, current: int, now: float) -> float:
    """For how long fewer than `current` replicas have been enough, in seconds; 0 where they are not enough now.

    It goes back as far as `AutoscalerState.wanted`.
    """
    needed = [at for at, count in memory.wanted if count >= current]
    since = needed[-1] if needed else next((at for at, _ in memory.wanted), now)
    return max(0.0, now - since) if memory.wanted and memory.wanted[-1][1] < current else 0.0
