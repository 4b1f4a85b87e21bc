"""How much of this process clients may hold at once: connections, and bytes of bodies that are being worked on.

Each port has its own, so that a crowd on the data port never keeps `/livez` or `/metrics` waiting for a place. What
does not fit is told so at once, with 503 and when to come again; nobody waits inside for room.
"""

import asyncio
import logging
import resource
from typing import Final, cast

from sluice_engine.server.errors import Unavailable
from sluice_engine.server.room import RETRY_SECONDS, Room

MAX_CONNECTIONS: Final = 16384  # of the data port: idle ones cost some tens of kilobytes each
ADMIN_CONNECTIONS: Final = 256
OTHER_FILES: Final = 256  # descriptors for the engine, logs, weights' metadata and those who are being turned away
TURNED_AWAY: Final = 128  # at a time: beyond, a connection is cut without a word
FAREWELL_SECONDS: Final = 2.0  # for the client to read why, while what it sends is thrown away

log = logging.getLogger("sluice.http")


class Places:
    """Counts of one port, and its room for bodies."""

    def __init__(self, connections: int, room: Room | None = None) -> None:
        self.most_connections = connections
        self.room = Room() if room is None else room
        self.connections = 0
        self.turned_away = 0  # connections that are being told

    def can_connect(self) -> bool:
        """Whether there is a place for one more connection."""
        return self.connections < self.most_connections


def raise_open_files() -> None:
    """Let this process open what all places take, as far as its hard limit goes: soft limits are often 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + ADMIN_CONNECTIONS + OTHER_FILES
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:  # some systems have a lower ceiling than the limit they tell
        log.warning("the limit of open files stays at %d: %s", soft, error)


def data_connections() -> int:
    """Connections that the data port may have: what open files allow, when the admin port has had its own."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, files - ADMIN_CONNECTIONS - OTHER_FILES))


class TurnedAway(asyncio.Protocol):
    """A connection for which there was no place: it reads why, and closes."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._told = False
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say why, whatever the client is about to send."""
        stream = cast(asyncio.Transport, transport)  # uvloop's are not of asyncio's classes
        if self._places.turned_away >= TURNED_AWAY:
            stream.abort()
            return
        self._told = True
        self._places.turned_away += 1
        stream.write(_farewell(self._places.most_connections))
        if stream.can_write_eof():
            stream.write_eof()
        # Closing on a client that still sends resets the connection, and the reset may overtake the answer.
        self._end = asyncio.get_running_loop().call_later(FAREWELL_SECONDS, stream.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has read it, or not."""
        if self._end is not None:
            self._end.cancel()
        if self._told:
            self._told = False
            self._places.turned_away -= 1


def _farewell(most: int) -> bytes:
    error = Unavailable(
        f"This server has as many connections as it can serve, {most}; connect again in a moment.",
        code="connections_full",
        retry_after=RETRY_SECONDS,
    )
    body = error.body()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | error.headers()).items())
    return f"HTTP/1.1 503 Service Unavailable\r\n{lines}\r\n".encode() + body
