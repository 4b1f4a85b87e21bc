"""The result of one request."""

from dataclasses import dataclass
from typing import Literal

FailureKind = Literal["refused", "status", "connection", "timeout", "no_done", "stream_error", "malformed", "mismatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One request as its user observes it, including all attempts and the delays between them. Times in seconds."""

    index: int
    arrival: float  # from the start of the load
    failure: FailureKind | None
    message: str  # the failure; empty if none
    text: str
    input_tokens: int
    output_tokens: int
    ttft: float | None  # from arrival to the first text
    gaps: tuple[float, ...]  # between pieces of text at their arrival
    seconds: float  # from arrival to the end
    attempts: int
    refusals: int  # attempts that ended with 429 or 503

    @property
    def itl(self) -> float | None:
        """Mean inter-token latency; None for an output of fewer than two tokens."""
        if self.output_tokens < 2 or not self.gaps:
            return None
        return sum(self.gaps) / (self.output_tokens - 1)

    def met(self, ttft_target: float | None, itl_target: float | None) -> bool:
        """True if the request succeeded within the given targets."""
        if self.failure is not None:
            return False
        on_time = ttft_target is None or (self.ttft is not None and self.ttft <= ttft_target)
        return on_time and (itl_target is None or self.itl is None or self.itl <= itl_target)

    def record(self) -> dict[str, object]:
        """One line of the record file: a trace entry that the simulator can replay, and the measured latencies."""
        return {
            "arrival": round(self.arrival, 6),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "ttft": None if self.ttft is None else round(self.ttft, 6),
            "itl": None if self.itl is None else round(self.itl, 6),
            "seconds": round(self.seconds, 6),
            "attempts": self.attempts,
            "refusals": self.refusals,
            "failure": self.failure,
        }
