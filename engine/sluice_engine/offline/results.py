"""Result types of offline generation. No torch."""

from dataclasses import dataclass

from sluice_engine.request import TokenLogprob


@dataclass(frozen=True, slots=True)
class Sample:
    """One output. Times are `time.monotonic()` seconds at the end of the step that produced the token; None without
    tokens.

    `finish_reason` is "stop" (end of sequence, a stop token or a stop string), "length", or "error" with a sentence in
    `error`. `token_ids` are all output tokens, those of a stop string included; `text` ends before it.
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
    """The `n` samples of one prompt; `text` and the other properties are those of the first sample."""

    prompt_token_ids: tuple[int, ...]
    submitted_at: float
    cached_tokens: int  # prompt tokens hit in the prefix cache
    samples: tuple[Sample, ...]
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None  # one per token, if requested; the first is None

    @property
    def text(self) -> str:
        """The first sample's text."""
        return self.samples[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The first sample's tokens."""
        return self.samples[0].token_ids

    @property
    def finish_reason(self) -> str:
        """The first sample's finish reason."""
        return self.samples[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """The first sample's logprobs, one per token if requested."""
        return self.samples[0].logprobs

    @property
    def first_token_at(self) -> float | None:
        """Time of the first sample's first token."""
        return self.samples[0].first_token_at

    @property
    def last_token_at(self) -> float | None:
        """Time of the first sample's last token."""
        return self.samples[0].last_token_at
