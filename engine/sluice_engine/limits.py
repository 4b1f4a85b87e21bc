"""The admission limits and SLO targets of one engine, the changes that a patch makes to them, and the limits in force.

The options of `sluice serve` and the targets file give the base limits. `PATCH /limits` changes them for a time, and the
engine's controller (`control/limit_controller.py`) chooses the concurrency inside their range. Standard library only:
the scheduler and the simulator read these values too.
"""

from dataclasses import dataclass, fields, replace
from typing import Final, TypedDict, Unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Admission limits and SLO targets. Times are in seconds."""

    concurrency_min: int = 1
    concurrency_max: int = 256
    max_queue: int = 1024
    max_batched_tokens: int = 2048
    kv_watermark: float = 1.0  # share of the KV pool that running requests may hold, 0..1
    itl_target: float = 0.05
    ttft_target: float = 2.0

    def changed(self, **changes: Unpack["LimitChanges"]) -> "Limits":
        """These limits with the changes. A minimum above the maximum is lowered to it."""
        limits = replace(self, **changes)
        return replace(limits, concurrency_min=min(limits.concurrency_min, limits.concurrency_max))


class LimitChanges(TypedDict, total=False):
    """New values for some fields of `Limits`; an absent field keeps its value."""

    concurrency_min: int
    concurrency_max: int
    max_queue: int
    max_batched_tokens: int
    kv_watermark: float
    itl_target: float
    ttft_target: float


LIMIT_NAMES: Final = tuple(each.name for each in fields(Limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsInForce:
    """The limits that an engine applies now, and the concurrency that its controller has chosen inside their range."""

    limits: Limits
    concurrency: int
    ttl: float | None = None  # seconds until the patch expires and the base limits apply; None: base limits in force
    reason: str = "cold"  # the constraint that sets the concurrency: "itl", "kv", "bounds", "cold"


def at_start(limits: Limits) -> LimitsInForce:
    """The limits in force before the engine has sent a report."""
    return LimitsInForce(limits=limits, concurrency=limits.concurrency_max)
