"""Shortage: since when fewer replicas serve than are set, with none of them starting."""

from dataclasses import dataclass

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ShortageState:
    """Since when the fleet lacks replicas with none starting, in monotonic seconds; None: it does not."""

    since: float | None = None


def note_shortage(snapshot: Snapshot, state: ShortageState, ordered: int) -> ShortageState:
    """Update the shortage; `ordered` replicas are set."""
    if ordered <= len(snapshot.fleet.ready) or snapshot.fleet.starting:
        return ShortageState()
    return ShortageState(snapshot.now) if state.since is None else state


def is_waiting_for_replicas(snapshot: Snapshot, state: ShortageState, ordered: int) -> bool:
    """Whether replicas are missing and still expected: a node that must be created first also takes a minute."""
    if ordered <= len(snapshot.fleet.ready):
        return False
    usual = LAW.usual_cold_start_seconds
    patience = max(cold_start.planned_seconds(snapshot.signals.cold_starts) or 0.0, usual)
    return state.since is None or snapshot.now - state.since < patience
