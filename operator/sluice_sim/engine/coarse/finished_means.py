"""Smoothed means over the finished requests of a coarse engine, with the scheduler's smoothing."""

from dataclasses import dataclass

from sluice_engine.control.smoothing import smoothed


@dataclass(slots=True)
class FinishedRequestMeans:
    """Smoothed means over finished requests; None until the first one."""

    output: float | None = None  # tokens
    prompt: float | None = None  # uncached prompt tokens
    residence: float | None = None  # seconds from its start to its end

    def observe(self, output: int, prompt: int, residence: float) -> None:
        """Add a finished request: output tokens, uncached prompt tokens, seconds."""
        self.output = smoothed(self.output, float(output))
        self.prompt = smoothed(self.prompt, float(prompt))
        self.residence = smoothed(self.residence, residence)

    @property
    def prompt_per_output(self) -> float | None:
        """Uncached prompt tokens per output token."""
        return None if not self.output or self.prompt is None else self.prompt / self.output
