"""The open connections to all engines. A connection is used again within KEEPALIVE_SECONDS, the newest first."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sluice_gateway.upstream.answer import Answer
from sluice_gateway.upstream.connection import EngineConnection
from sluice_gateway.upstream.errors import ConnectFailed, ConnectionLost, ConnectTimedOut

KEEPALIVE_SECONDS: Final = 15.0  # engines keep an idle connection for 75
CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it is sent. `target` is the path with its query, as it is on the wire."""

    method: str
    target: str
    headers: Iterable[tuple[str, str]]
    body: bytes = b""


class Connections:
    """Connections by engine. Engines are addressed by host and port."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, int], deque[EngineConnection]] = {}
        self._swept = 0.0

    async def send(self, host: str, port: int, request: Request) -> Answer:
        """The answer to a request, once its headers are there. Raises UpstreamError.

        A GET on a connection that the engine has closed meanwhile is sent again, on a new one.
        """
        key, head = (host, port), head_of(host, port, request)
        connection = self._take(key)
        if connection is not None:
            try:
                return await connection.send(head, request.body)
            except ConnectionLost:
                if request.method != "GET":
                    raise
        return await (await self._connect(key)).send(head, request.body)

    def close(self) -> None:
        """Closes the idle connections; others close with their answers."""
        for idle in self._free.values():
            for connection in idle:
                connection.close()
        self._free.clear()

    def _take(self, key: tuple[str, int]) -> EngineConnection | None:
        idle, oldest = self._free.get(key), asyncio.get_running_loop().time() - KEEPALIVE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.usable and connection.free_since >= oldest:
                return connection
            connection.close()
        return None

    async def _connect(self, key: tuple[str, int]) -> EngineConnection:
        host, port = key
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: EngineConnection(key, self._give_back), host.strip("[]"), port
                )
        except TimeoutError as error:
            raise ConnectTimedOut from error
        except OSError as error:
            raise ConnectFailed from error
        return connection

    def _give_back(self, connection: EngineConnection) -> None:
        now = connection.free_since = asyncio.get_running_loop().time()
        self._free.setdefault(connection.key, deque()).append(connection)
        if now - self._swept > KEEPALIVE_SECONDS:
            self._swept = now
            self._sweep(now - KEEPALIVE_SECONDS)

    def _sweep(self, oldest: float) -> None:
        """Closes the connections that have been idle for long, also those to engines that are gone."""
        for key, idle in list(self._free.items()):
            while idle and (idle[0].free_since < oldest or not idle[0].usable):
                idle.popleft().close()
            if not idle:
                del self._free[key]


def head_of(host: str, port: int, request: Request) -> bytes:
    """The request line and the headers. Raises ValueError for one that would end its line."""
    lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {host}:{port}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    if request.method == "POST":
        lines.append(f"Content-Length: {len(request.body)}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        raise ValueError("a header of a request has a line break")
    return text.encode("utf-8", "surrogateescape") + b"\r\n\r\n"
