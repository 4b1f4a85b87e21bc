"""The frames of the engine's socket, read from an asyncio stream as a parent of the engine process does."""

import asyncio

from sluice_engine import messages


async def next_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame's body, or None at the end of the stream."""
    try:
        return await reader.readexactly(messages.frame_length(await reader.readexactly(messages.HEAD_BYTES)))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
