"""Replicas that answer at once: 16 events and no model. `python -m tests.bench.gateway.null_engine COUNT` prints their ports.

A request with the header `x-hold` gets one event and then nothing until its client leaves. Only as much of HTTP is read
as gateways send, so that a measurement leaves the processors to what it measures.
"""

import asyncio
import json
import re
import sys
from typing import Final, cast

EVENTS: Final = 16
_EVENT: Final = b'data: {"choices":[{"index":0,"delta":{"content":"token "}}]}\n\n'
LOAD: Final = {
    "model": "null", "phase": "serving", "ready": True, "running": 0, "waiting": 0, "limit": 4096, "ttft_target_seconds": 2.0, "prefill_tokens": 0,
    "output_tokens": 16.0, "kv_held_tokens": 0, "kv_total_tokens": 2_000_000,
    "step_model": {"base": 0.02, "prefill_token": 1e-4, "prefill_context": 0.0, "sequence": 1e-3, "kv_token": 0.0},
}  # fmt: skip
_LENGTH: Final = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_HOLD: Final = re.compile(rb"\r\nx-hold:", re.IGNORECASE)
_STREAM: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Replica(asyncio.Protocol):
    """One connection. A GET gets the load, a POST a stream in as many writes as it has events."""

    def __init__(self) -> None:
        self._read = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Answers each request that is whole."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[: end + 2])
            length = found.group(1) if (found := _LENGTH.search(head)) else b"0"
            size = end + 4 + int(length)
            if len(self._read) < size:
                return
            del self._read[:size]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        if self._transport is None:
            return
        if head.startswith(b"GET"):
            body = json.dumps(LOAD).encode()
            kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(kind % len(body) + body)
            return
        self._transport.write(_STREAM)
        if _HOLD.search(head):
            self._transport.write(chunk(_EVENT))
            return
        for _ in range(EVENTS):
            self._transport.write(chunk(_EVENT))
        self._transport.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def main(count: int) -> None:
    """Serve `count` replicas, each with a data and an admin port, until the process is ended."""
    loop, ports = asyncio.get_running_loop(), []
    for _ in range(2 * count):
        server = await loop.create_server(Replica, "127.0.0.1", 0, backlog=1024)
        ports.append(server.sockets[0].getsockname()[1])
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
