"""What offline generation gives back, in the order of the prompts. No torch here."""

from dataclasses import dataclass

from sluice_engine.request import TokenLogprob


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. Times are `time.monotonic()` seconds, of the end of the step that gave the token; None without any.

    `finish_reason` is "stop" (end of sequence, a stop token or a stop string), "length", or "error" with a sentence in
    `error`. `token_ids` are all tokens that were generated, those of a stop string included; `text` ends before it.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[TokenLogprob, ...] | None
    first_token_at: float | None
    last_token_at: float | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The answers to one prompt, `n` of them; `text` and the like are those of the first."""

    prompt_token_ids: tuple[int, ...]
    submitted_at: float
    cached_tokens: int  # of the prompt, found in the prefix cache
    samples: tuple[Sample, ...]

    @property
    def text(self) -> str:
        """The first answer's text."""
        return self.samples[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The first answer's tokens."""
        return self.samples[0].token_ids

    @property
    def finish_reason(self) -> str:
        """Why the first answer ended."""
        return self.samples[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """The first answer's logprobs, one per token, where they were asked for."""
        return self.samples[0].logprobs

    @property
    def first_token_at(self) -> float | None:
        """When the first answer's first token came."""
        return self.samples[0].first_token_at

    @property
    def last_token_at(self) -> float | None:
        """When the first answer's last token came."""
        return self.samples[0].last_token_at
