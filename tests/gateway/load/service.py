"""What a Service does for clients: each connection goes to one of its endpoints, and stays there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count


class Service:
    """`endpoints` are ports on 127.0.0.1; a test may change them. One that a connection has stays until its end."""

    def __init__(self, *endpoints: int) -> None:
        self.endpoints = list(endpoints)
        self.port = 0
        self._turns = count()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Forward connections meanwhile."""
        async with await asyncio.start_server(self._forward, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoint = self.endpoints[next(self._turns) % len(self.endpoints)]
        with contextlib.suppress(OSError):
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", endpoint)
            await asyncio.gather(_copy(reader, their_writer), _copy(their_reader, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To the end of what comes, which ends the other side too."""
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    finally:
        writer.close()
