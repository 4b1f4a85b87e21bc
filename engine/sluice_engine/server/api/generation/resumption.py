"""Streams that can go on at another replica: the field `resume`, and what such a stream says of its tokens.

With `resume: true` each write of the stream ends with a comment of its token ids (`: tokens 5,6`), from which a gateway knows
what the events before it were made of. It sends the request of a broken stream to another replica with those tokens as the
beginning of the output: nothing of them is sent again. This needs an output that the tokens alone decide, so greedy or seeded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sluice import contract
from sluice_engine import messages
from sluice_engine.server.api.fields import MAX_INTEGER, Object, boolean, integer, invalid, only, text
from sluice_engine.server.api.generation.sampling_fields import Choices
from sluice_engine.server.api.request_fields import Form, list_of

NAME: Final = contract.FIELD_RESUME
MAX_TOKENS: Final = 2**20
_ID: Final[Object] = {"type": "string", "maxLength": 128}
_TOKENS: Final = list_of({"type": "integer", "minimum": 0}, 0, MAX_TOKENS)
_FROM: Final[Object] = {
    "type": "object",
    "properties": {"id": _ID, "created": {"type": "integer", "minimum": 0}, "tokens": _TOKENS},
    "required": ["tokens"],
    "additionalProperties": False,
    "description": "Set by a gateway: the stream that goes on.",
}
RESUME: Final = Form(NAME, {"anyOf": [{"type": "boolean", "default": False}, _FROM]})


@dataclass(frozen=True, slots=True)
class Resumption:
    """`tokens` are the output that the client has; with them the id and the time of its stream, else both are new."""

    tokens: tuple[int, ...] = ()
    stream_id: str = ""
    created: int = 0


def resumption(body: Object, choices: Choices, *, stream: bool) -> Resumption | None:
    """Parses the field; None for a request that cannot go on elsewhere. Raises BadRequest."""
    if NAME not in body:
        return None
    value = body.get(NAME)
    found = _begun(value) if isinstance(value, dict) else Resumption() if boolean(body, NAME, False) else None
    if found is None:
        return None
    if not stream:
        raise invalid(NAME, "is for streams; set stream to true or leave it out")
    if choices.params.n != 1:
        raise invalid(NAME, "is for one sample; set n to 1 or leave it out")
    if choices.params.prompt_logprobs is not None:
        raise invalid(NAME, "excludes logprobs of the prompt")
    if body.get("temperature") != 0 and body.get("seed") is None:
        raise invalid(NAME, "needs an output that can be repeated; set temperature to 0, or a seed")
    return found


def _begun(value: Object) -> Resumption:
    known = _FROM["properties"]
    only(value, known, f"{NAME}.")
    tokens = value.get("tokens")
    if (
        not isinstance(tokens, list)
        or len(tokens) > MAX_TOKENS
        or not all(type(each) is int and each >= 0 for each in tokens)
    ):
        raise invalid(f"{NAME}.tokens", f"must be a list of at most {MAX_TOKENS} token ids")
    created = integer({f"{NAME}.created": value.get("created")}, f"{NAME}.created", 0, MAX_INTEGER, 0)
    stream_id = text({f"{NAME}.id": value.get("id")}, f"{NAME}.id", 128)
    return Resumption(tuple(tokens), stream_id or "", created or 0)


def comment(deltas: Iterable[messages.Delta]) -> bytes:
    """The token ids of the events before it, as a comment of the event stream."""
    ids = ",".join(str(token) for delta in deltas for token in delta.token_ids)
    return f"{contract.SSE_TOKENS}{ids}\n\n".encode()
