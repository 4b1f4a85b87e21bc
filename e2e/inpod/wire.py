"""Runs in a pod: passes connections on to the API server, and keeps what comes on those that have become quiet.

A client sends nothing on the connection of a watch, so these fall silent and others do not. Port 6443 takes the connections;
port 8001 answers GET /quiet with the number of open connections on which the client has sent nothing for QUIET_SECONDS, and
GET /stall in the same way, but from then on those stay silent. GET /cut ends that: it closes them, and what came on them is
lost.
"""

import asyncio
import contextlib
import os
import time

PORT, CONTROL_PORT = 6443, 8001
QUIET_SECONDS = 20.0  # longer than an idle connection of the operator's pool stays open
BYTES = 65536


class Wire:
    """The open connections, by when their clients last sent something, in monotonic seconds."""

    def __init__(self) -> None:
        self.sent_at: dict[object, float] = {}
        self.stalls = False
        self.cut = asyncio.Event()

    @property
    def quiet(self) -> int:
        """The number of connections whose client has been quiet for long."""
        return sum(map(self._is_quiet, self.sent_at))

    def _is_quiet(self, connection: object) -> bool:
        return time.monotonic() - self.sent_at[connection] > QUIET_SECONDS

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection until either side ends it."""
        where = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
        connection, (upstream, out) = object(), await asyncio.open_connection(*where)
        self.sent_at[connection] = time.monotonic()

        async def asked() -> None:
            while data := await reader.read(BYTES):
                self.sent_at[connection] = time.monotonic()
                out.write(data)
                await out.drain()

        async def answered() -> None:
            while data := await upstream.read(BYTES):
                if self.stalls and self._is_quiet(connection):
                    await self.cut.wait()
                    break
                writer.write(data)
                await writer.drain()

        try:
            ends = {asyncio.create_task(asked()), asyncio.create_task(answered())}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        finally:
            del self.sent_at[connection]
            for each in (out, writer):
                each.close()

    async def tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            request = await reader.readuntil(b"\r\n\r\n")
            self.stalls |= request.startswith(b"GET /stall ")
            if request.startswith(b"GET /cut "):
                self.stalls = False
                self.cut.set()
            body = str(self.quiet).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        writer.close()


async def main() -> None:
    """Serve until the pod ends."""
    wire = Wire()
    servers = [
        await asyncio.start_server(wire.carry, "0.0.0.0", PORT),
        await asyncio.start_server(wire.tell, "0.0.0.0", CONTROL_PORT),
    ]
    await asyncio.gather(*(each.serve_forever() for each in servers))


if __name__ == "__main__":
    asyncio.run(main())
