"""The next replica count from the needed one: out at once, in one by one, and to zero after the idle time."""

from dataclasses import dataclass, replace

from sluice_operator.autoscaler.replicas.need import Need
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StabilizationState:
    """The recent needs, and since when the fleet is observed and idle. Times are monotonic seconds."""

    observed_since: float | None = None  # no scale-in before a whole window has been observed; None: no call yet
    seen_at: float = 0.0  # the last call
    needs: tuple[tuple[float, int], ...] = ()  # (time, count), each count above all later ones
    scaled_in_at: float | None = None  # the last scale-in
    idle_since: float | None = None  # None: the fleet is not idle, or it is not known


def next_count(snapshot: Snapshot, need: Need, state: StabilizationState) -> int:
    """The next count inside the range.

    Scale-out is immediate. Scale-in removes one replica at a time, and only after every need in the stabilization window
    allowed it, with nothing starting and a whole window observed. The last replica is removed only after
    scaleToZeroAfterSeconds without any request. A request that a gateway holds starts a model that is scaled to zero.
    """
    allowed, now = need.allowed, snapshot.now
    current = allowed.inside(need.current)
    if snapshot.observed.held and current == 0:
        return min(1, allowed.high)
    if need.replicas > current:
        return min(need.replicas, allowed.high)
    window = stabilization_window(snapshot)
    observed = state.observed_since is not None and now - state.observed_since >= window
    spaced = state.scaled_in_at is None or now - state.scaled_in_at >= min(LAW.window_seconds, window)
    if need.hold or snapshot.fleet.starting or not observed or not spaced:
        return current
    if current == 1 and allowed.low == 0 and state.idle_since is not None:
        return 0 if now - state.idle_since >= snapshot.spec.scaling.scale_to_zero_after_seconds else 1
    most = state.needs[0][1] if state.needs else current
    return current if most >= current else max(current - 1, allowed.low, 1)


def note_idle(snapshot: Snapshot, state: StabilizationState) -> StabilizationState:
    """Note since when the whole fleet is idle: every replica is measured, and the gateway holds no request."""
    fleet = snapshot.fleet
    idle = bool(fleet.measured) and not fleet.unmeasured and not snapshot.observed.held and snapshot.is_idle
    if not idle:
        return replace(state, idle_since=None)
    return replace(state, idle_since=snapshot.now) if state.idle_since is None else state


def record_need(snapshot: Snapshot, need: Need, state: StabilizationState) -> StabilizationState:
    """Keep the needs of the stabilization window of which the largest is asked; during a hold it is the current count.

    Only a need above all later ones can be the largest of a window that still holds it, so the others are dropped.
    """
    now = snapshot.now
    count = need.allowed.inside(max(need.replicas, need.current if need.hold else 0))
    if now - state.seen_at > 3.0 * max(LAW.usual_scrape_seconds, snapshot.signals.window.scrape_gap or 0.0):
        # The fleet was not observed (another mode, a pause, failed writes): a whole window starts again.
        state = replace(state, observed_since=now)
    begin = now - stabilization_window(snapshot)
    needs = [(at, kept) for at, kept in state.needs if begin < at <= now and kept > count]
    return replace(state, seen_at=now, needs=(*needs, (now, count)))


def stabilization_window(snapshot: Snapshot) -> float:
    """How long fewer replicas must have been enough before a scale-in, in seconds."""
    return float(snapshot.spec.scaling.scale_down_stabilization_seconds)
