"""Validates the sampling fields: what ends an output, number of samples, logprobs, penalties and biases.

`best_of` samples are generated, and the `n` with the highest mean logprob per token are returned (OpenAI's completions
API).
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from sluice_engine.sampling_params import MIN_REPETITION_PENALTY, SamplingParams
from sluice_engine.server.api.fields import MAX_INTEGER, Object, invalid
from sluice_engine.server.api.request_fields import (
    Fields,
    Flag,
    Form,
    Integer,
    Neutral,
    Number,
    Strings,
    fields,
    list_of,
)
from sluice_engine.server.errors import Unsupported

MAX_CHOICES: Final = 16
MAX_TOP_LOGPROBS: Final = 20
MAX_BIASES: Final = 1024
MAX_STOPS: Final = 4
MAX_STOP_CHARACTERS: Final = 512
MAX_STOP_TOKENS: Final = 64
MAX_TOP_K: Final = 1_000_000
MAX_BIAS: Final = 100.0
_TOKEN_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")

TEMPERATURE: Final = Number("temperature", 0.0, 2.0, 1.0)
TOP_P: Final = Number("top_p", 0.0, 1.0, 1.0, above=True)
TOP_K: Final = Integer("top_k", 0, MAX_TOP_K, 0)
SEED: Final = Integer("seed", -MAX_INTEGER - 1, MAX_INTEGER)
STOP: Final = Strings("stop", MAX_STOPS, MAX_STOP_CHARACTERS)
STOP_TOKEN_IDS: Final = Form(
    "stop_token_ids", list_of({"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, 0, MAX_STOP_TOKENS)
)
IGNORE_EOS: Final = Flag("ignore_eos")
N: Final = Integer("n", 1, MAX_CHOICES, 1)
BEST_OF: Final = Integer("best_of", 1, MAX_CHOICES)
SWITCH: Final = Flag("logprobs")  # of a chat
COUNT: Final = Integer("logprobs", 0, MAX_TOP_LOGPROBS)  # of a completion
TOP_LOGPROBS: Final = Integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
PROMPT_LOGPROBS: Final = Integer("prompt_logprobs", 0, MAX_TOP_LOGPROBS)
MIN_TOKENS: Final = Integer("min_tokens", 0, MAX_INTEGER, 0)
MIN_P: Final = Number("min_p", 0.0, 1.0, 0.0)
PRESENCE_PENALTY: Final = Number("presence_penalty", -2.0, 2.0, 0.0)
FREQUENCY_PENALTY: Final = Number("frequency_penalty", -2.0, 2.0, 0.0)
REPETITION_PENALTY: Final = Number("repetition_penalty", MIN_REPETITION_PENALTY, 2.0, 1.0)
LOGIT_BIAS: Final = Form(
    "logit_bias",
    {
        "type": "object",
        "maxProperties": MAX_BIASES,
        "propertyNames": {"pattern": f"^({_TOKEN_ID.pattern})$"},
        "additionalProperties": {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS},
    },
)
_BOTH: Final = fields(
    TEMPERATURE, TOP_P, TOP_K, MIN_P, SEED, STOP, STOP_TOKEN_IDS, IGNORE_EOS, MIN_TOKENS, N,
    PRESENCE_PENALTY, FREQUENCY_PENALTY, REPETITION_PENALTY, LOGIT_BIAS,
)  # fmt: skip
# Fields whose value is the parameter of the same name, and whose default is the parameter's.
_READ: Final = (
    TEMPERATURE, TOP_P, TOP_K, MIN_P, SEED, IGNORE_EOS,
    PRESENCE_PENALTY, FREQUENCY_PENALTY, REPETITION_PENALTY, PROMPT_LOGPROBS,
)  # fmt: skip
CHAT: Final[Fields] = {
    **_BOTH,
    **fields(SWITCH, TOP_LOGPROBS, Neutral("best_of", (1,)), Neutral("prompt_logprobs", ())),
}
COMPLETION: Final[Fields] = {**_BOTH, **fields(COUNT, BEST_OF, PROMPT_LOGPROBS, Neutral("top_logprobs", ()))}


@dataclass(frozen=True, slots=True)
class Choices:
    """The samples of a request and their parameters; `params.n` samples are generated.

    The ids of `logit_bias` are not yet checked against the width of the logits, nor `min_tokens` against the context.
    """

    n: int  # returned samples
    returns_logprobs: bool
    min_tokens: int
    params: SamplingParams
    prompt_logprobs: int | None = None  # top tokens beside each token of the prompt, in vLLM's format

    @property
    def ranked(self) -> bool:
        """Whether all samples must finish before the best `n` can be chosen."""
        return self.params.n > self.n


def chat_choices(body: Object, max_tokens: int | None, stop: Strings = STOP) -> Choices:
    """Parses a chat body with this limit: `logprobs` is a boolean and `top_logprobs` a number. `stop` reads the stop strings,
    of which other APIs allow more. Raises BadRequest, Unsupported.
    """
    if body.get("prompt_logprobs") is not None:
        raise Unsupported("prompt_logprobs belongs to completions: send the text as a prompt.", param="prompt_logprobs")
    if body.get("best_of") is not None and BEST_OF.of(body) != 1:
        raise Unsupported("best_of belongs to completions; a chat has n.", param="best_of")
    top = TOP_LOGPROBS.of(body)
    wanted = SWITCH.of(body)
    if top is not None and not wanted:
        raise invalid("top_logprobs", "is only allowed with logprobs: true")
    n = N.of(body) or 1
    return _choices(body, max_tokens, n, n, (top or 0) if wanted else None, stop)


def completion_choices(body: Object, max_tokens: int | None, stream: bool) -> Choices:
    """Parses a completion body with this limit: `logprobs` is the number of most likely tokens. Raises BadRequest,
    Unsupported.
    """
    if body.get("top_logprobs") is not None:
        raise Unsupported(
            "top_logprobs belongs to chat completions; here logprobs is the number.", param="top_logprobs"
        )
    n = N.of(body) or 1
    best_of = BEST_OF.of(body) or n
    if best_of < n:
        raise invalid("best_of", f"must be at least n, which is {n}")
    if stream and best_of > n:
        raise invalid("best_of", "above n cannot be streamed: the best is known only at the end")
    if stream and body.get("prompt_logprobs") is not None:
        raise invalid("prompt_logprobs", "cannot be streamed; use echo with logprobs")
    return _choices(body, max_tokens, n, best_of, COUNT.of(body))


def _choices(
    body: Object, max_tokens: int | None, n: int, best_of: int, logprobs: int | None, stop: Strings = STOP
) -> Choices:
    given: dict[str, Any] = {each.name: each.of(body) for each in _READ if each.name in body}
    params = SamplingParams(
        n=best_of,
        max_tokens=max_tokens,
        stop=stop.of(body),
        stop_token_ids=_stop_token_ids(body),
        logprobs=0 if logprobs is None and best_of > n else logprobs,
        logit_bias=_logit_bias(body),
        **given,
    )
    return Choices(n, logprobs is not None, MIN_TOKENS.of(body) or 0, params, params.prompt_logprobs)


def _stop_token_ids(body: Object) -> tuple[int, ...]:
    """Returns the ids, not yet checked against the width of the logits. Raises BadRequest."""
    value = body.get("stop_token_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_STOP_TOKENS:
        raise invalid("stop_token_ids", f"must be a list of at most {MAX_STOP_TOKENS} token ids")
    if any(type(each) is not int or not 0 <= each < 2**31 for each in value):
        raise invalid("stop_token_ids", "must hold token ids")
    return tuple(value)


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
