"""Converts streamed tokens to text without emitting incomplete characters or losing any.

Byte-level BPE tokens are bytes, not characters; an emoji may span four of them. They are looked up in a table and
passed to an incremental UTF-8 decoder, which buffers an incomplete tail. Other tokenizers (SentencePiece with byte
fallback) use `tokenizers`' DecodeStream, which implements their rules for spaces.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol

from tokenizers.decoders import DecodeStream

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Detokenizer(Protocol):
    """The decoder of one request."""

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete."""

    def flush(self) -> str:
        """The remaining text at the end of the request; an incomplete character becomes U+FFFD."""


@cache
def _byte_of_character() -> dict[str, int]:
    """Inverse of GPT-2's printable representation of bytes (openai/gpt-2 encoder.py, bytes_to_unicode)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(256 + index): byte for index, byte in enumerate(hidden)})
    return table


def token_bytes(token: str) -> bytes:
    """A byte-level token's bytes; a token with characters outside the table (an added token) gives its own UTF-8."""
    table = _byte_of_character()
    try:
        return bytes(table[character] for character in token)
    except KeyError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """A SentencePiece token's bytes: ▁ is a space, <0xE2> is a byte."""
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


class ByteLevelDetokenizer:
    """Table lookup and an incremental UTF-8 decoder. `table[id]` is b"" for tokens without text."""

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        table = self._table
        width = len(table)
        # Padded logits may produce ids beyond the vocabulary, which have no text.
        return self._decoder.decode(b"".join([table[token] for token in token_ids if token < width]))

    def flush(self) -> str:
        """The incomplete tail as U+FFFD."""
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """`tokenizers`' DecodeStream, with a flush for the tail that it would buffer indefinitely."""

    def __init__(self, tokenizer: Any, *, special_tokens: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip = not special_tokens
        self._stream = DecodeStream(skip_special_tokens=self._skip)
        self._pending: list[int] = []

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        parts: list[str] = []
        for token in token_ids:
            text = self._stream.step(self._tokenizer, token)
            if text is None:
                self._pending.append(token)
            else:
                parts.append(text)
                self._pending.clear()
        return "".join(parts)

    def flush(self) -> str:
        """The tokens that never completed a character, decoded in one call without the stream."""
        tail, self._pending = self._pending, []
        return str(self._tokenizer.decode(tail, skip_special_tokens=self._skip)) if tail else ""
