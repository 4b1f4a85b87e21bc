"""The candidate law: replay of the recent past by the engines' shadow queues."""

from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.values import Decision, EngineSample, Observed
from sluice_perfmodel.shadow_queues import LOADS
from sluice_sim.benchmark.candidate.history import Slot, Slots, extended, increase, total
from sluice_sim.benchmark.candidate.rules import enough, growth, in_memory, lasting, model_error
from sluice_sim.benchmark.candidate.settings import REPLAY
from sluice_sim.benchmark.search.schedule import ScheduleState, decide_with_count
from sluice_sim.policies.policy import Knob, current

NO_KNOB: Final = Knob("", 1.0, (1.0,))


@dataclass(frozen=True, slots=True)
class ReplayState:
    """What the law carries from one decision to the next. Times in seconds."""

    admission: ScheduleState = field(default_factory=ScheduleState)
    samples: tuple[tuple[str, EngineSample], ...] = ()  # the newest of each ready pod
    slots: Slots = ()
    arrivals: tuple[tuple[float, float], ...] = ()  # (end of a bin, requests per second), oldest first
    counted: tuple[float, float] = (0.0, 0.0)  # (begin of the bin that is counted, its requests so far)
    held: tuple[tuple[float, float], ...] = ()  # (time, sum of the replicas' KV occupancy)
    needed: tuple[tuple[float, int], ...] = ()  # (time, count) of the stabilization window
    ready: int = 0
    changed_at: float = 0.0  # when the fleet changed, or a replica was still starting
    seen_at: float = 0.0
    scaled_in_at: float | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The law; it has no knob."""

    setting: float = 1.0
    name: str = "replay"
    knob: Knob = NO_KNOB
    admits: bool = True

    def initial(self) -> ReplayState:
        """No history."""
        return ReplayState()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: ReplayState, now: float
    ) -> tuple[Decision, ReplayState]:
        """The fewest replicas that the past and the growing present need; admission as under a constant count."""
        state = observe(memory, observed, now)
        count = current(spec, observed)
        needed = min(max(replicas_needed(spec, state, now), spec.scaling.min_replicas), spec.scaling.max_replicas)
        state, after = stabilized(spec, observed, state, (count, needed), now)
        decision, admission = decide_with_count(spec, observed, state.admission, now, after)
        return decision, replace(state, admission=admission)


def replicas_needed(spec: LLMDeploymentSpec, state: ReplayState, now: float) -> int:
    """The largest of what the memory, the lasting load with its growth, and the KV caches need."""
    missed_share = 1.0 - float(spec.slo.attainment_percent) / 100.0
    most = max(1, int(state.ready / LOADS[0]))  # the replay knows no larger fleet
    error = model_error(tuple(slot for slot in state.slots if slot.ended > now - REPLAY.error_seconds))
    remembered = tuple(slot for slot in state.slots if slot.ended > now - REPLAY.memory_seconds)
    lead = cold_start.expected_seconds(state.admission.signals.cold_starts)
    span = max(REPLAY.trend_seconds, lead)
    recent = [one for one in state.arrivals if one[0] > now - span]
    load = error * growth(recent, lead)
    held = sum(one for _, one in state.held) / max(1, len(state.held))
    return max(
        enough(remembered, error, missed_share, most),
        lasting(state.slots, now, load, missed_share, most),
        in_memory(held, spec.scaling.target_kv_occupancy_percent / 100.0),
        1,
    )


def observe(state: ReplayState, observed: Observed, now: float) -> ReplayState:
    """The state with the newest scrapes."""
    samples = {pod.name: pod.sample for pod in observed.pods if pod.phase == "ready" and pod.sample is not None}
    before = dict(state.samples)
    delta = total(increase(before.get(name), sample) for name, sample in samples.items())
    starting = any(pod.phase not in ("ready", "draining") for pod in observed.pods)
    changed = now if starting or len(samples) != state.ready else state.changed_at
    slots = state.slots
    if samples:
        settled = now - changed > REPLAY.settled_seconds
        slot = Slot(state.seen_at, now, len(samples), settled, delta)
        slots = extended(slots, slot, REPLAY.slot_seconds, max(REPLAY.memory_seconds, REPLAY.error_seconds))
    held = (*state.held, (now, sum(sample.kv_occupancy for sample in samples.values())))
    state = _count_arrivals(state, delta.requests, now)
    return replace(
        state,
        samples=tuple(samples.items()),
        slots=slots,
        held=tuple(one for one in held if one[0] > now - REPLAY.rise_seconds),
        ready=len(samples),
        changed_at=changed,
        seen_at=now,
    )


def stabilized(
    spec: LLMDeploymentSpec, observed: Observed, state: ReplayState, counts: tuple[int, int], now: float
) -> tuple[ReplayState, int]:
    """The next count, from the (current, needed) `counts`: out at once, in one by one after the stabilization window."""
    count, needed = counts
    window = float(spec.scaling.scale_down_stabilization_seconds)
    kept = tuple(one for one in (*state.needed, (now, needed)) if one[0] > now - window)
    state = replace(state, needed=kept)
    starting = any(pod.phase not in ("ready", "draining") for pod in observed.pods)
    paused = state.scaled_in_at is not None and now - state.scaled_in_at < REPLAY.pause_seconds
    if needed >= count or starting or paused or now < window or max(one for _, one in kept) >= count:
        return state, max(count, needed)
    return replace(state, scaled_in_at=now), count - 1


def _count_arrivals(state: ReplayState, requests: float, now: float) -> ReplayState:
    """Close the bin that is counted once it is long enough."""
    begun, counted = state.counted
    counted += requests
    if now - begun < REPLAY.bin_seconds:
        return replace(state, counted=(begun, counted))
    longest = max(REPLAY.trend_seconds, cold_start.expected_seconds(state.admission.signals.cold_starts))
    arrivals = tuple(one for one in state.arrivals if one[0] > now - longest)
    return replace(state, arrivals=(*arrivals, (now, counted / (now - begun))), counted=(now, 0.0))
