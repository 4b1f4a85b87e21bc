"""The order in which replicas are removed."""

from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.values import PodView


def scale_in_candidates(snapshot: Snapshot, count: int) -> tuple[str, ...]:
    """The `count` pods that are cheapest to remove, cheapest first.

    The order is: pods that were never scheduled or failed; pods still loading, newest first (only a changed spec lowers
    the count while one loads: `stabilization.next_count`); pods with the fewest requests in flight. A pod without a
    sample comes last, because it counts as busy. Draining pods are already being removed and are left out.
    """
    staying = [pod for pod in snapshot.observed.pods if pod.phase != "draining"]
    return tuple(pod.name for pod in sorted(staying, key=_cost)[: max(count, 0)])


def _cost(pod: PodView) -> tuple[int, float, str]:
    """The rank of a pod: lower is removed first."""
    if pod.phase in ("unschedulable", "failed"):
        return 0, 0.0, pod.name
    if pod.phase != "ready":
        return 1, -pod.since, pod.name
    if pod.sample is None:
        return 3, 0.0, pod.name
    return 2, pod.sample.running + pod.sample.waiting, pod.name
