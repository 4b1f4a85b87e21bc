"""Validates the sampling fields beyond temperature and top-p: number of samples, logprobs, penalties and biases.

`best_of` samples are generated, and the `n` with the highest mean logprob per token are returned (OpenAI's completions
API).
"""

import re
from dataclasses import dataclass
from typing import Final

from sluice_engine.sampling_params import MIN_REPETITION_PENALTY, SamplingParams
from sluice_engine.server.api.fields import MAX_INTEGER, Object, boolean, integer, invalid, number
from sluice_engine.server.errors import Unsupported

MAX_CHOICES: Final = 16
MAX_TOP_LOGPROBS: Final = 20
MAX_BIASES: Final = 1024
MAX_BIAS: Final = 100.0
_TOKEN_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")

FIELDS: Final = frozenset(
    {"n", "logprobs", "presence_penalty", "frequency_penalty", "repetition_penalty", "min_p", "logit_bias"}
    | {"min_tokens", "top_logprobs", "best_of"}
)


@dataclass(frozen=True, slots=True)
class Choices:
    """The samples of a request and their parameters; `params.n` samples are generated.

    The ids of `logit_bias` are not yet checked against the width of the logits, nor `min_tokens` against the context.
    """

    n: int  # returned samples
    returns_logprobs: bool
    min_tokens: int
    params: SamplingParams

    @property
    def ranked(self) -> bool:
        """Whether all samples must finish before the best `n` can be chosen."""
        return self.params.n > self.n


def chat_choices(body: Object) -> Choices:
    """Parses a chat body: `logprobs` is a boolean and `top_logprobs` a number. Raises BadRequest, Unsupported."""
    if body.get("best_of") is not None and integer(body, "best_of", 1, MAX_CHOICES) != 1:
        raise Unsupported("best_of belongs to completions; a chat has n.", param="best_of")
    top = integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    wanted = boolean(body, "logprobs")
    if top is not None and not wanted:
        raise invalid("top_logprobs", "is only allowed with logprobs: true")
    n = integer(body, "n", 1, MAX_CHOICES, 1) or 1
    return _choices(body, n, n, (top or 0) if wanted else None)


def completion_choices(body: Object, stream: bool) -> Choices:
    """Parses a completion body: `logprobs` is the number of most likely tokens. Raises BadRequest, Unsupported."""
    if body.get("top_logprobs") is not None:
        raise Unsupported(
            "top_logprobs belongs to chat completions; here logprobs is the number.", param="top_logprobs"
        )
    n = integer(body, "n", 1, MAX_CHOICES, 1) or 1
    best_of = integer(body, "best_of", 1, MAX_CHOICES, n) or n
    if best_of < n:
        raise invalid("best_of", f"must be at least n, which is {n}")
    if stream and best_of > n:
        raise invalid("best_of", "above n cannot be streamed: the best is known only at the end")
    return _choices(body, n, best_of, integer(body, "logprobs", 0, MAX_TOP_LOGPROBS))


def _choices(body: Object, n: int, best_of: int, logprobs: int | None) -> Choices:
    params = SamplingParams(
        n=best_of,
        logprobs=0 if logprobs is None and best_of > n else logprobs,
        min_p=number(body, "min_p", 0.0, 1.0, 0.0),
        presence_penalty=number(body, "presence_penalty", -2.0, 2.0, 0.0),
        frequency_penalty=number(body, "frequency_penalty", -2.0, 2.0, 0.0),
        repetition_penalty=number(body, "repetition_penalty", MIN_REPETITION_PENALTY, 2.0, 1.0),
        logit_bias=_logit_bias(body),
    )
    return Choices(n, logprobs is not None, integer(body, "min_tokens", 0, MAX_INTEGER, 0) or 0, params)


def _logit_bias(body: Object) -> dict[int, float]:
    bias = body.get("logit_bias")
    if bias is None:
        return {}
    if not isinstance(bias, dict) or len(bias) > MAX_BIASES:
        raise invalid("logit_bias", f"must be an object of at most {MAX_BIASES} token ids")
    for token, value in bias.items():
        if _TOKEN_ID.fullmatch(token) is None:
            raise invalid("logit_bias", "must have token ids as its keys")
        if type(value) not in (int, float) or not -MAX_BIAS <= value <= MAX_BIAS:
            raise invalid("logit_bias", f"must have numbers from {-MAX_BIAS:g} to {MAX_BIAS:g} as its values")
    return {int(token): float(value) for token, value in bias.items()}
