"""Reads the short answers of replicas to the gateway's own requests."""

from typing import Final

import aiohttp

ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)


async def read_at_most(content: aiohttp.StreamReader, most: int) -> bytes:
    """The content to its end, or its first `most` bytes. One `read` returns only what has arrived."""
    parts = b""
    while len(parts) < most and (part := await content.read(most - len(parts))):
        parts += part
    return parts
