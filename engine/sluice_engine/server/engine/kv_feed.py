"""What happens to the blocks of tagged prompts, passed on to the readers of `/kv_events`.

The engine records events only while there is a reader. Each event is encoded once, and numbered. A reader that is too far
behind loses all that waits for it, and gets a `reset` in its place: it can tell nothing of the cache any more.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Final

import orjson

from sluice_engine import messages
from sluice_engine.server.errors import Unavailable

MAX_READERS: Final = 16  # a gateway is one
MAX_PENDING_BYTES: Final = 1024 * 1024  # per reader
HEARTBEAT: Final = b":\n\n"  # a comment, which shows a reader that this server is there


class FeedReader:
    """The events that one client has not taken yet."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0
        self._lost = 0
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def push(self, event: bytes) -> None:
        """Add an event. What is pending is dropped where both together take more than MAX_PENDING_BYTES."""
        if self._size + len(event) > MAX_PENDING_BYTES:
            self._lost += len(self._pending) + 1
            self._pending, self._size = [], 0
        else:
            self._pending.append(event)
            self._size += len(event)
        self._wake()

    def close(self) -> None:
        """The client gets no more events."""
        self._closed = True
        self._wake()

    async def next(self, seconds: float) -> bytes | None:
        """The events since the last call, a heartbeat after `seconds` without one, None once the reader is closed."""
        if not (self._pending or self._lost or self._closed):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._waiter
            except TimeoutError:
                return HEARTBEAT
        if self._closed:
            return None
        lost = [event_text("reset", None, {"lost": self._lost})] if self._lost else []
        taken = b"".join(lost + self._pending)
        self._pending, self._size, self._lost = [], 0, 0
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class KvFeed:
    """All readers. The engine is told when the first one comes and when the last one leaves."""

    def __init__(self, follow: Callable[[messages.FollowKv], None]) -> None:
        self._follow = follow
        self._engine = secrets.token_hex(8)
        self._readers: set[FeedReader] = set()
        self._number = 0

    @property
    def is_read(self) -> bool:
        """Whether there is a reader, so that prompts need their tags."""
        return bool(self._readers)

    @property
    def opening(self) -> bytes:
        """The first event of a feed: after a restart of the engine it is another one."""
        return event_text("begin", None, {"engine": self._engine})

    @contextlib.contextmanager
    def reader(self) -> Iterator[FeedReader]:
        """Context manager of one reader, which gets the events from now on. Raises Unavailable beyond MAX_READERS."""
        if len(self._readers) >= MAX_READERS:
            raise Unavailable(f"There are {MAX_READERS} readers already.", code="too_many_readers", retry_after=10.0)
        found = FeedReader()
        self._readers.add(found)
        if len(self._readers) == 1:
            self._follow(messages.FollowKv(True))
        try:
            yield found
        finally:
            self._readers.remove(found)
            if not self._readers:
                self._follow(messages.FollowKv(False))

    def publish(self, message: messages.KvEvents) -> None:
        """Pass events on to all readers."""
        if not self._readers:
            return
        for event in message.events:
            self._number += 1
            text = _text(event, self._number)
            for reader in self._readers:
                reader.push(text)


def _text(event: messages.KvStored | messages.KvRemoved, number: int) -> bytes:
    if isinstance(event, messages.KvRemoved):
        return event_text("removed", number, {"blocks": event.blocks})
    found = {"prompt": event.tag, "tokens": event.tokens, "block_tokens": event.block_tokens, "blocks": event.blocks}
    return event_text("stored", number, found)


def event_text(name: str, number: int | None, data: object) -> bytes:
    """A server-sent event; a number becomes its id."""
    head = f"event: {name}\n" if number is None else f"event: {name}\nid: {number}\n"
    return head.encode() + b"data: " + orjson.dumps(data) + b"\n\n"
