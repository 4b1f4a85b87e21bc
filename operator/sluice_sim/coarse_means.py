"""What a coarse engine knows of the requests that ended there, smoothed as the scheduler does."""

from dataclasses import dataclass

from sluice_engine.scheduler.smoothing import smoothed


@dataclass(slots=True)
class Means:
    """None until one has ended."""

    output: float | None = None  # tokens
    prompt: float | None = None  # tokens that it had to compute
    residence: float | None = None  # seconds that it ran

    def learn(self, output: int, prompt: int, residence: float) -> None:
        """One has ended."""
        self.output = smoothed(self.output, float(output))
        self.prompt = smoothed(self.prompt, float(prompt))
        self.residence = smoothed(self.residence, residence)

    @property
    def prompt_per_output(self) -> float | None:
        """Prompt tokens to compute for each generated one."""
        return None if not self.output or self.prompt is None else self.prompt / self.output
