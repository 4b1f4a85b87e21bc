"""Replaces crashed pods while no pod is ready: the kubelet's own back-off grows to five minutes."""

from dataclasses import dataclass
from typing import Final

from sluice import contract
from sluice_operator.cluster.fleet import ObservedFleet
from sluice_operator.reconcile.context import Context

_INITIAL_DELAY: Final = 20.0  # seconds before the first crashed pod is replaced; the delay doubles
_MAX_DELAY: Final = 300.0  # seconds
# Faults that a user can fix outside the pod while the kubelet's own back-off has grown to minutes.
_REPLACEABLE: Final = frozenset(
    {
        contract.REASON_MODEL_NOT_FOUND,
        contract.REASON_MODEL_INVALID,
        contract.REASON_UNSUPPORTED_ARCHITECTURE,
        contract.REASON_INSUFFICIENT_MEMORY,
    }
)


@dataclass(frozen=True, slots=True)
class CrashReplacement:
    """The crashed pods that were replaced since a pod was last ready."""

    count: int = 0
    last_at: float = 0.0  # monotonic seconds


async def replace_crashed(
    namespace: str, fleet: ObservedFleet, state: CrashReplacement, context: Context
) -> CrashReplacement:
    """While no pod is ready, delete one crashed pod at a time, with exponential backoff. Raises ClusterError.

    The replacement starts at once; the kubelet would wait up to five minutes after the model has become available.
    """
    if fleet.ready:
        return CrashReplacement()
    crashed = [
        pod for pod in fleet.pods if pod.view.phase == "failed" and pod.problem and pod.problem.reason in _REPLACEABLE
    ]
    if not crashed:
        return state
    now = context.clock()
    delay = min(_INITIAL_DELAY * 2 ** min(state.count, 16), _MAX_DELAY)
    if now - max(state.last_at, min(pod.view.since for pod in crashed)) < delay:
        return state
    await context.cluster.delete("Pod", namespace, crashed[0].view.name)
    return CrashReplacement(state.count + 1, now)
