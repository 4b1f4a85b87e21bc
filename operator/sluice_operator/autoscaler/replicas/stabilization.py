"""The next replica count from the recommended one, under the rules of scale-out, scale-in and scale to zero."""

from dataclasses import dataclass, replace

from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StabilizationState:
    """The recent scale-in floors, and since when the fleet is observed and idle. Times are monotonic seconds."""

    observed_since: float | None = None  # no scale-in before a whole window has been observed; None: no call yet
    floors: tuple[tuple[float, int], ...] = ()  # (time, largest scale-in floor), in coarse slots, oldest first
    scaled_in_at: float | None = None  # the last scale-in
    idle_since: float | None = None  # None: the fleet is not idle, or it is not known


def next_count(snapshot: Snapshot, recommendation: Recommendation, state: StabilizationState, window: float) -> int:
    """The next count inside the range.

    Scale-out is immediate. Scale-in removes one replica at a time, and only after every floor in the stabilization
    window (`window`, from `scale_in_window`) allowed it, with nothing starting and a whole window observed. The last
    replica is removed only after scaleToZeroAfterSeconds without any request. A request that a gateway holds starts a
    model that is scaled to zero.
    """
    allowed, now = recommendation.allowed, snapshot.now
    current = allowed.inside(recommendation.current)
    if snapshot.observed.held and current == 0:
        return 1
    if recommendation.scale_out_to > current:
        return min(recommendation.scale_out_to, allowed.high)
    observed = state.observed_since is not None and now - state.observed_since >= window
    pause = min(LAW.signals.window_seconds, window)
    spaced = state.scaled_in_at is None or now - state.scaled_in_at >= pause
    if recommendation.hold or snapshot.fleet.starting or not observed or not spaced:
        return current
    if current == 1 and allowed.low == 0 and state.idle_since is not None:
        return 0 if now - state.idle_since >= snapshot.spec.scaling.scale_to_zero_after_seconds else 1
    floor = max((count for _, count in state.floors), default=current)
    return current if floor >= current else max(current - 1, allowed.low, 1)


def note_idle(snapshot: Snapshot, state: StabilizationState) -> StabilizationState:
    """Note since when the whole fleet is idle: every replica is measured, and the gateway holds no request."""
    fleet = snapshot.fleet
    idle = bool(fleet.measured) and not fleet.unmeasured and not snapshot.observed.held and snapshot.is_idle
    if not idle:
        return replace(state, idle_since=None)
    return replace(state, idle_since=snapshot.now) if state.idle_since is None else state


def record_floor(
    snapshot: Snapshot, recommendation: Recommendation, state: StabilizationState, window: float
) -> StabilizationState:
    """Keep the largest scale-in floor per slot of the stabilization window; during a hold it is the current count."""
    now = snapshot.now
    slot = max(1.0, window / LAW.replicas.stabilization_slots)
    held = recommendation.current if recommendation.hold else 0
    count = recommendation.allowed.inside(max(recommendation.scale_in_floor, held))
    gap = slot + max(LAW.signals.window_seconds, 3.0 * (snapshot.signals.window.scrape_gap or 0.0))
    if not state.floors or now - state.floors[-1][0] > gap:
        # The fleet was not observed (another mode, a pause, failed writes): a whole window starts again.
        state = replace(state, observed_since=now)
    floors = tuple((at, kept) for at, kept in state.floors if now - window - slot < at <= now)
    if floors and now - floors[-1][0] < slot:
        floors = (*floors[:-1], (floors[-1][0], max(floors[-1][1], count)))
    else:
        floors = (*floors, (now, count))
    return replace(state, floors=floors)


def scale_in_window(snapshot: Snapshot, warming: float) -> float:
    """How long fewer replicas must have been enough before a scale-in, in seconds.

    It is the stabilization window, and at least the cold start of a replacement. A scale-in and the later scale-out
    also cost the capacity that a cold cache lacks (`warming`, seconds of a replica: `cache_warmth.warming_seconds`),
    once for each. A move made only after waiting for as long as it costs pays at most twice the optimum in hindsight
    (the rent-or-buy rule: Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988). The total is at most three
    windows.
    """
    settings = LAW.replicas
    start = cold_start.median_start(snapshot.signals.cold_starts)
    least = 0.0 if start is None else min(start.total, settings.cold_start_hold_most_seconds)
    window = max(float(snapshot.spec.scaling.scale_down_stabilization_seconds), least)
    return window + min(settings.caches_per_move * warming, settings.warming_most_windows * window)


def seconds_below(state: StabilizationState, count: int, now: float) -> float:
    """For how long fewer than `count` replicas have been enough, in seconds; 0 where they are not enough now.

    It goes back as far as the recorded floors.
    """
    if not state.floors or state.floors[-1][1] >= count:
        return 0.0
    needed = [at for at, floor in state.floors if floor >= count]
    return max(0.0, now - (needed[-1] if needed else state.floors[0][0]))
