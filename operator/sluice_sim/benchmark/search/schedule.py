"""Laws without feedback: a fixed count, and a written schedule.

Both use sluice's admission with its slow loop, so that admission does not contribute to the difference to other laws.
They neither run decide() nor keep its whole state: their results stay valid when the replica controller changes, and a
search for a schedule takes an hour.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.admission.bounds import engine_bounds
from sluice_operator.autoscaler.admission.shortage import ShortageState, is_waiting_for_replicas, note_shortage
from sluice_operator.autoscaler.replicas.scale_in_order import scale_in_candidates
from sluice_operator.autoscaler.replicas.service_conditions import service_conditions
from sluice_operator.autoscaler.signals.freshness import fleet_metrics
from sluice_operator.autoscaler.signals.snapshot import take_snapshot
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.signals.update import update_signals
from sluice_operator.autoscaler.targets import targets
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_perfmodel.slo_limits import slo_concurrency
from sluice_sim.policies.policy import Knob

Counts = tuple[int, ...]
PIECE: Final = 300.0  # seconds of a schedule's piece
COUNT: Final = Knob("replicas", 1.0, (1.0,), "replicas")


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The parts of the autoscaler's state that admission reads, and the time of the first observation (s)."""

    signals: SignalState = field(default_factory=SignalState)
    shortage: ShortageState = field(default_factory=ShortageState)
    observed_since: float | None = None


class TimedLaw(ABC):
    """A law whose number of replicas depends on the time alone."""

    __slots__ = ()

    @abstractmethod
    def count(self, now: float) -> int:
        """The replicas that are ordered at `now`."""

    def initial(self) -> ScheduleState:
        """The state before the first observation."""
        return ScheduleState()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: ScheduleState, now: float
    ) -> tuple[Decision, ScheduleState]:
        """The count now, and the admission bounds."""
        return decide_with_count(spec, observed, memory, now, self.count(now))


@dataclass(frozen=True, slots=True)
class Static(TimedLaw):
    """Always `setting` replicas."""

    setting: float
    name: str = "static"
    knob: Knob = COUNT
    admits: bool = True

    def count(self, now: float) -> int:
        """The setting, whatever the time."""
        return round(self.setting)


@dataclass(frozen=True, slots=True)
class Scheduled(TimedLaw):
    """`counts[k]` replicas are ready in [k·PIECE, (k+1)·PIECE): launched `lead` seconds early, drained at the end."""

    counts: Counts
    lead: float
    setting: float = 1.0
    name: str = "clairvoyant"
    knob: Knob = COUNT
    admits: bool = True

    def count(self, now: float) -> int:
        """The count now, or the count at the time when a replica launched now becomes ready, whichever is larger."""
        return max(self.at(now), self.at(now + self.lead))

    def at(self, now: float) -> int:
        """The scheduled number of ready replicas at `now`."""
        return self.counts[min(len(self.counts) - 1, int(now / PIECE))]


def decide_with_count(
    spec: LLMDeploymentSpec, observed: Observed, state: ScheduleState, now: float, count: int
) -> tuple[Decision, ScheduleState]:
    """`count` replicas, the least loaded drained first, with the slow loop of admission."""
    observed_since = now if state.observed_since is None else state.observed_since
    fleet = fleet_metrics(observed, state.signals.window.scrape_gap, now)
    signals, _ = update_signals(state.signals, fleet, observed, targets(spec).ttft, now)
    snapshot = take_snapshot(spec, observed, fleet, signals, now)
    shortage = note_shortage(snapshot, state.shortage, count)
    conditions = service_conditions(snapshot)
    limit = None if conditions is None else slo_concurrency(conditions)
    coming = is_waiting_for_replicas(snapshot, shortage, count)
    admitted = engine_bounds(snapshot, limit, coming, observed_since)
    leaving = scale_in_candidates(snapshot, (observed.replicas or 0) - count)
    decision = Decision(replicas=count, desired=count, bounds=admitted, scale_in_candidates=leaving)
    return decision, ScheduleState(signals, shortage, observed_since)


def last_piece(seconds: float) -> float:
    """Seconds of a window's last piece, which may be shorter."""
    return seconds - PIECE * max(0, math.ceil(seconds / PIECE) - 1)


def cost(counts: Sequence[int], lead: float, last: float = PIECE) -> float:
    """Replica-seconds of a schedule whose last piece takes `last` seconds, including the cold start of each start."""
    starts = sum(max(0, b - a) for a, b in itertools.pairwise(counts))
    return PIECE * sum(counts[:-1]) + last * counts[-1] + lead * starts


def seconds_saved(counts: Sequence[int], piece: int, lead: float, last: float = PIECE) -> float:
    """Replica-seconds saved by one replica fewer in the piece: the piece itself, and the change in cold starts."""
    return cost(counts, lead, last) - cost(with_removals(counts, (piece,)), lead, last)


def with_removals(counts: Sequence[int], pieces: Sequence[int]) -> Counts:
    """The schedule with one replica fewer in each of the pieces."""
    return tuple(count - (piece in pieces) for piece, count in enumerate(counts))
