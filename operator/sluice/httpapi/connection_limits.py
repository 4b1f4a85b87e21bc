"""Bounds the resources that clients hold at once: connections, and bytes of bodies in processing.

Each port has its own limits, so that overload on the data port never blocks `/livez` or `/metrics`. A client beyond a
limit gets 503 with Retry-After at once; no connection waits in a queue.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from typing import Final, cast

from sluice.httpapi.body_budget import RETRY_SECONDS, BodyBudget
from sluice.httpapi.errors import COMMON_HEADERS, Unavailable

MAX_CONNECTIONS: Final = 16384  # of the data port; an idle connection costs some tens of kilobytes
ADMIN_CONNECTIONS: Final = 256
RECEIVE_SECONDS: Final = 25.0  # seconds for a complete request, headers and body, from its first byte
WRITE_SECONDS: Final = 30.0  # a client that reads nothing of its answer for so long is disconnected
OTHER_FILES: Final = 256  # descriptors for the engine, logs, weights' metadata and rejected connections
MAX_REJECTED: Final = 128  # concurrent rejected connections; further ones are aborted without a response
REJECTION_SECONDS: Final = 2.0  # seconds for the client to read the response; its bytes are discarded

log = logging.getLogger("sluice.http")


class ConnectionLimits:
    """Connection count, connection limit, body budget and receive deadline of one port."""

    def __init__(
        self,
        connections: int,
        body_budget: BodyBudget | None = None,
        *,
        receive_seconds: float = RECEIVE_SECONDS,
        on_rejected: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_rejected` is told the error's code of each request that is rejected before a handler sees it."""
        self.max_connections = connections
        self.receive_seconds = receive_seconds
        self.on_rejected = on_rejected
        self.body_budget = BodyBudget() if body_budget is None else body_budget
        self.closing = False  # every connection closes after its next response
        self.connections = 0
        self.rejected = 0  # rejected connections whose response is in progress

    def can_connect(self) -> bool:
        """Whether one more connection fits."""
        return self.connections < self.max_connections


def raise_open_files() -> None:
    """Raises the soft limit of open files to the sum of all connection limits, up to the hard limit: soft limits are often
    1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + ADMIN_CONNECTIONS + OTHER_FILES
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:  # some systems have a lower maximum than the reported limit
        log.warning("the limit of open files stays at %d: %s", soft, error)


def data_connections() -> int:
    """Returns the connection limit of the data port: the open-file limit less the reserve of the admin port and others."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, files - ADMIN_CONNECTIONS - OTHER_FILES))


class RejectedConnection(asyncio.Protocol):
    """A rejected connection: it sends the reason and closes."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._counted = False
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the reason without reading a request; aborts if MAX_REJECTED connections are being rejected."""
        stream = cast(asyncio.Transport, transport)  # uvloop's transports do not subclass asyncio's
        self._limits.on_rejected("connections_full")
        if self._limits.rejected >= MAX_REJECTED:
            stream.abort()
            return
        self._counted = True
        self._limits.rejected += 1
        stream.write(_rejection_response(self._limits.max_connections))
        if stream.can_write_eof():
            stream.write_eof()
        # Closing while the client still sends resets the connection, and the reset may overtake the response.
        self._end = asyncio.get_running_loop().call_later(REJECTION_SECONDS, stream.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Removes the rejected connection from the count."""
        if self._end is not None:
            self._end.cancel()
        if self._counted:
            self._counted = False
            self._limits.rejected -= 1


def _rejection_response(most: int) -> bytes:
    error = Unavailable(
        f"This server has reached its limit of {most} connections; connect again shortly.",
        code="connections_full",
        retry_after=RETRY_SECONDS,
    )
    body = error.body()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | COMMON_HEADERS | error.headers()).items())
    return f"HTTP/1.1 503 Service Unavailable\r\n{lines}\r\n".encode() + body
