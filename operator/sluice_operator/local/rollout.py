"""What the Deployment and ReplicaSet controllers would do next, as a pure function of what is there.

Scale-in ranks as the ReplicaSet controller does: not ready before ready, then the lowest pod-deletion-cost, then the
youngest. A changed template surges first and drains after, so that no capacity is lost on the way.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod that is not being deleted."""

    name: str
    current: bool  # made from the newest template
    ready: bool
    cost: int  # pod-deletion-cost: the lowest leaves first
    created: float  # seconds, any clock


@dataclass(frozen=True, slots=True)
class Scale:
    """What the Deployment asks for."""

    desired: int
    max_surge: int = 1
    max_unavailable: int = 0


@dataclass(frozen=True, slots=True)
class Actions:
    """How many pods to start, and which to delete, now."""

    create: int = 0
    delete: tuple[str, ...] = ()


def leaving_order(pods: list[Replica]) -> list[Replica]:
    """The order in which pods leave on scale-in."""
    return sorted(pods, key=lambda pod: (pod.ready, pod.cost, -pod.created))


def next_actions(scale: Scale, pods: list[Replica]) -> Actions:
    """The next actions; the same input gives the same actions, and none once everything is as asked.

    Worked example: 2 wanted, 2 old ready, surge 1: one new pod starts; when it is ready, one old pod drains, the
    second new pod starts, and so on.
    """
    new = [pod for pod in pods if pod.current]
    old = [pod for pod in pods if not pod.current]
    surge = scale.max_surge if scale.max_surge or scale.max_unavailable else 1  # 0 and 0 could never move
    leaving = leaving_order(new)[: max(0, len(new) - scale.desired)]
    missing = max(0, scale.desired - len(new))
    if not old:
        return Actions(missing, tuple(pod.name for pod in leaving))
    leaving += [pod for pod in old if not pod.ready]
    spare = sum(pod.ready for pod in pods if pod not in leaving) - max(0, scale.desired - scale.max_unavailable)
    leaving += leaving_order([pod for pod in old if pod.ready])[: max(0, spare)]
    room = scale.desired + surge - (len(pods) - len(leaving))
    return Actions(max(0, min(missing, room)), tuple(pod.name for pod in leaving))
