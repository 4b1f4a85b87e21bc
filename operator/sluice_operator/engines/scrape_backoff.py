"""Selects the pods that are called, because a call that cannot be answered costs its whole timeout in every pass. Pure.

A pod on a lost node stays listed for minutes, and after its eviction until the node is back.
"""

from dataclasses import dataclass
from typing import Final

from sluice_operator.cluster.client import Object
from sluice_operator.cluster.pod_status import condition

FAILURES_BEFORE_BACKOFF: Final = 3  # consecutive timeouts before the backoff starts: shorter pauses are ordinary
INITIAL_BACKOFF: Final = 10.0  # seconds of the first backoff; doubles
MAX_BACKOFF: Final = 30.0  # seconds; bounds the calls of such a pod to 6 % of the time, and the delay of its return
GRACE_SLACK: Final = 30.0  # seconds beyond the grace period: a live kubelet removes the pod within a few


@dataclass(frozen=True, slots=True)
class ScrapeBackoff:
    """Backoff of one pod: its consecutive calls that timed out or returned an answer above a bound."""

    calls: int
    until: float  # monotonic seconds; time of the next call at the earliest
    cause: str  # of the newest failure

    def after_failure(self, cause: str, now: float) -> "ScrapeBackoff":
        """Return the backoff after one more such call at `now`."""
        doublings = self.calls + 1 - FAILURES_BEFORE_BACKOFF
        wait = 0.0 if doublings < 0 else min(INITIAL_BACKOFF * 2**doublings, MAX_BACKOFF)
        return ScrapeBackoff(min(self.calls + 1, FAILURES_BEFORE_BACKOFF + 16), now + wait, cause)


NO_BACKOFF: Final = ScrapeBackoff(calls=0, until=0.0, cause="")


def can_answer(pod: Object, draining: float, backoff: ScrapeBackoff | None, now: float) -> bool:
    """True if the pod may answer a call.

    `draining`: seconds of the local clock since its deletion was first observed, 0 if it is not being deleted.
    `now`: monotonic seconds.
    """
    metadata = pod.get("metadata", {})
    grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
    if draining > grace + GRACE_SLACK or is_node_lost(pod):
        return False
    return backoff is None or now >= backoff.until


def is_node_lost(pod: Object) -> bool:
    """True if the control plane has lost contact with the pod's node.

    The node lifecycle controller sets Ready to False and changes no other condition. A kubelet that sets it to False
    also gives a reason, and sets ContainersReady to False unless a readiness gate is the reason.
    """
    ready = condition(pod, "Ready")
    if ready.get("status") == "Unknown" or (pod.get("status") or {}).get("reason") == "NodeLost":
        return True
    untouched = condition(pod, "ContainersReady").get("status") == "True" and not ready.get("reason")
    return ready.get("status") == "False" and untouched
