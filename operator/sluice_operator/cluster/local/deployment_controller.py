"""The next actions of the Deployment and ReplicaSet controllers, as a pure function of the existing pods.

Scale-in uses the order of the ReplicaSet controller: not ready before ready, then the lowest pod-deletion-cost, then
the youngest. A rolling update starts new pods before it drains old ones, so that no capacity is lost.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod that is not being deleted."""

    name: str
    current: bool  # made from the newest template
    ready: bool
    cost: int  # pod-deletion-cost: the lowest is deleted first
    created: float  # seconds of any clock


@dataclass(frozen=True, slots=True)
class Scale:
    """The Deployment's replica count and rolling-update strategy."""

    desired: int
    max_surge: int = 1
    max_unavailable: int = 0


@dataclass(frozen=True, slots=True)
class Actions:
    """The number of pods to start and the names of pods to delete now."""

    create: int = 0
    delete: tuple[str, ...] = ()


def deletion_order(pods: list[Replica]) -> list[Replica]:
    """Return the pods in the order in which scale-in deletes them."""
    return sorted(pods, key=lambda pod: (pod.ready, pod.cost, -pod.created))


def next_actions(scale: Scale, pods: list[Replica]) -> Actions:
    """Return the next actions. Deterministic; empty once the pods match the scale.

    Worked example: 2 replicas desired, 2 old pods ready, surge 1. One new pod starts; when it is ready, one old pod
    drains and the second new pod starts; when that is ready, the other old pod drains.
    """
    new = [pod for pod in pods if pod.current]
    old = [pod for pod in pods if not pod.current]
    surge = scale.max_surge if scale.max_surge or scale.max_unavailable else 1  # 0 and 0 would block
    deleted = deletion_order(new)[: max(0, len(new) - scale.desired)]
    missing = max(0, scale.desired - len(new))
    if not old:
        return Actions(missing, tuple(pod.name for pod in deleted))
    deleted += [pod for pod in old if not pod.ready]
    spare = sum(pod.ready for pod in pods if pod not in deleted) - max(0, scale.desired - scale.max_unavailable)
    deleted += deletion_order([pod for pod in old if pod.ready])[: max(0, spare)]
    room = scale.desired + surge - (len(pods) - len(deleted))
    return Actions(max(0, min(missing, room)), tuple(pod.name for pod in deleted))
