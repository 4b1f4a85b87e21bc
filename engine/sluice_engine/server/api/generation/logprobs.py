"""Formats logprobs as OpenAI does: one object per token in chats, parallel lists in completions."""

from typing import Any, Protocol

from sluice_engine.text import Entry


class Vocabulary(Protocol):
    """Maps token ids to bytes."""

    def token_bytes(self, token: int) -> bytes:
        """Returns the token's bytes."""


def chat_logprobs(entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns `choices[].logprobs` of a chat."""
    content = []
    for entry in entries:
        if entry.logprob is None:
            raise ValueError("a chat does not show its prompt")
        formatted = _token(vocabulary, entry.token, entry.logprob.logprob)
        formatted["top_logprobs"] = [_token(vocabulary, token, value) for token, value in entry.logprob.top]
        content.append(formatted)
    return {"content": content, "refusal": None}


def completion_logprobs(entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns `choices[].logprobs` of a completion. Each token is added to its top tokens if it is not among them. The
    first token of a prompt has null in place of both.
    """
    tokens = [token_text(vocabulary.token_bytes(entry.token)) for entry in entries]
    tops: list[dict[str, float] | None] = []
    for entry, token in zip(entries, tokens, strict=True):
        if entry.logprob is None:
            tops.append(None)
            continue
        top = {token_text(vocabulary.token_bytes(other)): value for other, value in entry.logprob.top}
        tops.append(top | {token: entry.logprob.logprob})
    return {
        "tokens": tokens,
        "token_logprobs": [None if entry.logprob is None else entry.logprob.logprob for entry in entries],
        "top_logprobs": tops,
        "text_offset": [entry.start for entry in entries],
    }


def _token(vocabulary: Vocabulary, token: int, logprob: float) -> dict[str, Any]:
    raw = vocabulary.token_bytes(token)
    return {"token": token_text(raw), "logprob": logprob, "bytes": list(raw)}


def token_text(raw: bytes) -> str:
    """Returns the token's text. Incomplete UTF-8 is written as OpenAI does, `bytes:\\xf0\\x9f`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
