"""What waits in the queue, the queue's bounds, and why a request is not kept in it."""

from dataclasses import dataclass
from math import inf
from typing import Literal

Reason = Literal["queue_full", "queue_bytes_full", "wait_too_long", "displaced"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request. Higher priorities start first. `deadline`: when its first token is due, infinite without a target.

    `work` is in tokens, `size` in bytes, times in seconds. `weight` is the tenant's share relative to the other tenants.
    """

    number: int
    tenant: str = ""
    weight: float = 1.0
    priority: int = 0
    deadline: float = inf
    work: float = 1.0
    size: int = 0
    arrived_at: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one model's queue. `wait_seconds` bounds the predicted wait of a request that is accepted.

    `aging_seconds`: a request that has waited so long starts before all others of its priority, which bounds the wait of a
    request without a deadline while others with deadlines arrive. Halved, deadlines count less under overload; doubled,
    requests without one wait longer.
    """

    requests: int = 1024
    bytes: int = 128 * 1024 * 1024
    wait_seconds: float = 30.0
    aging_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Rejected:
    """`retry_after`: seconds until the queue should have room for the same request."""

    reason: Reason
    retry_after: float
