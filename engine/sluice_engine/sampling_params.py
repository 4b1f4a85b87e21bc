"""Sampling parameters of a request: a frozen value that is validated at construction.

The offline API takes it, the HTTP server parses a body into it, the socket carries it, and the sampler reads it.
Standard library only: the scheduler and the simulator read it too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from sluice_engine.grammar import Grammar
from sluice_engine.seeds import sample_seed

MAX_LOGPROBS: Final = 1024
MAX_SAMPLES: Final = 256
MIN_REPETITION_PENALTY: Final = 0.01  # logits are divided by it; smaller values can overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters for one prompt. Raises ValueError that names the field, the fault and the allowed range."""

    n: int = 1  # samples per prompt; they differ, and all repeat with the same seed
    max_tokens: int | None = 256  # output tokens; None: up to the end of the model's context
    min_tokens: int = 0  # end-of-sequence, stop tokens and stop strings are ignored before it
    temperature: float = 1.0  # 0: greedy
    top_k: int = 0  # sample from the k most likely tokens; 0: all
    top_p: float = 1.0  # sample from the smallest set of most likely tokens with total probability p; 1: all
    min_p: float = 0.0  # sample from tokens with at least min_p times the highest probability; 0: all
    presence_penalty: float = 0.0  # subtracted from the logit of every token in the output
    frequency_penalty: float = 0.0  # subtracted from the logit once per occurrence in the output
    repetition_penalty: float = 1.0  # tokens in prompt or output: logit divided if positive, else multiplied
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # token id → bias added to its logit
    seed: int | None = None  # None: a random seed for each call
    stop: str | tuple[str, ...] = ()  # the output ends before the first of these strings; matched outside the engine
    stop_token_ids: tuple[int, ...] = ()  # the output ends at the first of these tokens
    ignore_eos: bool = False  # the model's end-of-sequence token does not end the output
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that the output does not contain
    grammar: Grammar | None = None  # what the output must be; None: any text
    logprobs: int | None = None  # number of top tokens reported beside each sampled one; None: no logprobs
    prompt_logprobs: int | None = None  # the same beside each token of the prompt, whose cached prefix is then not used

    def __post_init__(self) -> None:
        """Validates every field."""
        _integer("n", self.n, 1, MAX_SAMPLES)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, None, "or None for all that the context holds")
        _integer("min_tokens", self.min_tokens, 0, self.max_tokens, "(max_tokens is the most)")
        _number("temperature", self.temperature, 0.0, None, "; 0 is greedy")
        _integer("top_k", self.top_k, 0, None, "; 0 is all tokens")
        _number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise ValueError("top_p must be above 0; for greedy decoding use temperature=0")
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, 2.0, "; 1 is none")
        for token, bias in self.logit_bias.items():
            _integer("a token id in logit_bias", token, 0, None)
            _number(f"logit_bias of token {token}", bias, -100.0, 100.0)
        if self.seed is not None:
            _integer("seed", self.seed, None, None, "or None")
        for stop in self.stops:
            if not isinstance(stop, str) or not stop:
                raise ValueError(f"stop must be a non-empty string or a tuple of such, not {self.stop!r}")
        for token in self.stop_token_ids:
            _integer("an id in stop_token_ids", token, 0, None)
        for word in self.bad_words:
            if not word:
                raise ValueError("an entry of bad_words must have at least one token id")
            for token in word:
                _integer("an id in bad_words", token, 0, None)
        if self.grammar is not None and (self.ignore_eos or self.min_tokens):
            raise ValueError("grammar ends the output where it is complete; it excludes ignore_eos and min_tokens")
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS, "or None for none")
        if self.prompt_logprobs is not None:
            _integer("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS, "or None for none")

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings as a tuple."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def has_penalties(self) -> bool:
        """True if scores depend on the counts of the preceding tokens."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0

    @property
    def reads_known(self) -> bool:
        """True if sampling must be given the preceding tokens when the request starts or resumes."""
        return self.has_penalties or bool(self.bad_words) or self.grammar is not None

    def sample_seed(self, sample: int) -> int | None:
        """The seed of the sample with index `sample`, as an unsigned 64-bit integer for the socket."""
        seed = sample_seed(self.seed, sample)
        return seed if seed is None else seed & 0xFFFFFFFFFFFFFFFF

    def within(self, room: int) -> "SamplingParams":
        """A copy for a prompt that leaves `room` tokens of the context, which limit the output."""
        max_tokens = room if self.max_tokens is None else min(self.max_tokens, room)
        return replace(self, max_tokens=max_tokens, min_tokens=min(self.min_tokens, max_tokens))

    def with_checked(self, **values: Any) -> "SamplingParams":
        """A copy with these values, which the caller has checked: nothing is validated again, which costs a request
        more than all the rest of the copy.
        """
        copied = object.__new__(SamplingParams)
        for name in _NAMES:
            object.__setattr__(copied, name, values[name] if name in values else getattr(self, name))
        return copied


_NAMES: Final = tuple(each.name for each in fields(SamplingParams))


def _integer(name: str, value: object, low: int | None, high: int | None, more: str = "") -> None:
    if type(value) is not int or (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} must be an integer{_range(low, high)}{_joined(more)}, not {value!r}")


def _number(name: str, value: object, low: float, high: float | None, more: str = "") -> None:
    fits = type(value) in (int, float) and low <= value < float("inf") and (high is None or value <= high)  # type: ignore[operator]
    if not fits:
        raise ValueError(f"{name} must be a number{_range(low, high)}{_joined(more)}, not {value!r}")


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    return f" of {low:g} or more" if high is None else f" from {low:g} to {high:g}"


def _joined(more: str) -> str:
    return more if not more or more.startswith(";") else f" {more}"


GREEDY: Final = SamplingParams(temperature=0.0)
