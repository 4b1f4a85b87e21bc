"""Spreads a burst of requests over turns of the event loop, so that no turn is long.

An event loop reads every socket that is ready before it does anything else. Of 10,000 requests that arrive at once, all
handlers would run in one turn, and `/livez` and every stream would wait for seconds. Here a turn reads a few of them; the
bytes of the others wait in the order of their arrival.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

READS_PER_TURN: Final = 4  # a request takes about a millisecond of a turn
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024  # beyond it, bytes are read at once


class Reader(Protocol):
    """A connection whose bytes may wait."""

    def read(self, data: bytes) -> None:
        """Processes bytes. Does nothing if the connection is lost."""


class Turns:
    """The reads of one port's connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = READS_PER_TURN
        self._waiting: deque[tuple[Reader, bytes]] = deque()
        self._owners: dict[Reader, int] = {}  # connection → its reads that wait
        self._bytes = 0
        self._scheduled = False

    def admit(self, reader: Reader, data: bytes) -> bool:
        """Whether the connection may process these bytes now. If not, its `read` is called with them in a later turn."""
        waits = reader in self._owners  # bytes of one connection stay in order
        if not waits and (self._left > 0 or self._bytes + len(data) > MAX_WAITING_BYTES):
            self._left -= 1
            self._schedule()
            return True
        self._waiting.append((reader, data))
        self._owners[reader] = self._owners.get(reader, 0) + 1
        self._bytes += len(data)
        self._schedule()
        return False

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Begins a turn: the oldest reads that wait come first."""
        self._scheduled, self._left = False, READS_PER_TURN
        while self._waiting and self._left:
            reader, data = self._waiting.popleft()
            self._left -= 1
            self._bytes -= len(data)
            self._owners[reader] -= 1
            if not self._owners[reader]:
                del self._owners[reader]
            if self._waiting or self._left < READS_PER_TURN:
                self._schedule()
            reader.read(data)
