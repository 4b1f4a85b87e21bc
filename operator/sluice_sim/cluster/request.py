"""The outcome of one request, as the simulator records it. A control law never sees it."""

from dataclasses import dataclass


@dataclass(slots=True)
class RequestRecord:
    """The outcome of one request. Times in seconds of virtual time.

    `output`: output tokens, cut to the context length. `failed`: its replica failed after the first token."""

    arrived_at: float
    prompt: int
    output: int
    first_at: float | None = None
    ended_at: float | None = None
    refused: bool = False
    failed: bool = False
    good: bool = False
    cached: int = 0  # prompt tokens found in the replica's prefix cache
    priority: int = 0
    tenant: str = ""

    @property
    def ttft(self) -> float | None:
        """Seconds from arrival to first token; None before the first token."""
        return None if self.first_at is None else self.first_at - self.arrived_at

    @property
    def itl(self) -> float | None:
        """Mean inter-token time in seconds; None with fewer than two tokens or before the end."""
        if self.first_at is None or self.ended_at is None or self.output < 2:
            return None
        return (self.ended_at - self.first_at) / (self.output - 1)

    def apply_slo(self, ttft_target: float, itl_target: float) -> bool:
        """Set and return `good` as spec.slo defines it: completed with both targets (seconds) met.

        The engine calls it when the request ends."""
        self.good = (self.ttft or 0.0) <= ttft_target and (self.itl or 0.0) <= itl_target
        return self.good
