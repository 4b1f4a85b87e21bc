"""Decides whether a fault of the replicas can pass by itself. If it cannot, `sluice up` ends."""

from sluice.up.snapshot import Snapshot
from sluice.up.wording import PERMANENT, next_step


class CannotServe(Exception):
    """No replica can start with this file on this machine. The message states the cause and what to change."""


def permanent_fault(snapshot: Snapshot) -> CannotServe | None:
    """The fault that no replica of the snapshot can survive, or None.

    A replica that is ready or still starting is a reason to go on: its turn may find free memory or a repaired folder.
    """
    faults = [pod for pod in snapshot.pods if pod.phase == "failed" and pod.reason in PERMANENT]
    if not faults or any(pod.phase not in ("failed", "draining") for pod in snapshot.pods):
        return None
    first = faults[0]
    return CannotServe(f"{first.trouble} {next_step(first.reason or '')}".strip())
