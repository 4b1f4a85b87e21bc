"""One request's life as the simulator knows it. Nothing of it is visible to a law."""

from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """Seconds of virtual time. `output`: tokens of its answer, as far as the context holds them; `failed`: its replica
    died with its answer begun."""

    arrived_at: float
    prompt: int
    output: int
    first_at: float | None = None
    ended_at: float | None = None
    refused: bool = False
    failed: bool = False
    good: bool = False
    cached: int = 0  # prompt tokens found in its replica's prefix cache
    priority: int = 0
    tenant: str = ""

    @property
    def ttft(self) -> float | None:
        """Arrival to first token."""
        return None if self.first_at is None else self.first_at - self.arrived_at

    @property
    def itl(self) -> float | None:
        """Mean inter-token time; None with fewer than two tokens or before the end."""
        if self.first_at is None or self.ended_at is None or self.output < 2:
            return None
        return (self.ended_at - self.first_at) / (self.output - 1)

    def judge(self, ttft_target: float, itl_target: float) -> bool:
        """Good as spec.slo counts it: completed with both targets met. Called at its end."""
        self.good = (self.ttft or 0.0) <= ttft_target and (self.itl or 0.0) <= itl_target
        return self.good
