"""Budget for request bodies: bounded bytes, shared so that slow senders do not block other clients.

A body counts from its first byte until its last data is released. Small bodies have a budget of their own, so that a
few large bodies do not block them. If bytes do not fit, the largest body that is still arriving is cut off and its
bytes are freed: a sender that delivers bytes now takes precedence over one that may have stalled. Therefore only
complete bodies in processing can cause a rejection.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sluice_engine.server.errors import Unavailable

SMALL_BODY_BYTES: Final = 64 * 1024  # bodies up to this size use the small budget
MAX_BODY_BYTES_AT_WORK: Final = 64 * 1024 * 1024  # a parsed body takes several times its size
MAX_SMALL_BYTES_AT_WORK: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 1.0


@dataclass(eq=False, slots=True)
class Share:
    """One of the two budgets with the bytes in use."""

    most: int
    count: int = 0
    arriving: dict["Held", None] = field(default_factory=dict)  # may be cut off; in the order of their
    # last bytes, so that among bodies of equal size the longest silent one is cut off


@dataclass(eq=False, slots=True)
class Held:
    """The bytes of one body. `on_cut` is called once, when the body is cut off to make room for others."""

    on_cut: Callable[[], None]
    count: int = 0
    cut: bool = False
    share: Share | None = None


class Room:
    """The budget for all bodies of one port. `most` and `most_small` are in bytes."""

    def __init__(self, most: int = MAX_BODY_BYTES_AT_WORK, most_small: int = MAX_SMALL_BYTES_AT_WORK) -> None:
        self._large = Share(most)
        self._small = Share(most_small)

    @property
    def count(self) -> int:
        """Bytes of all bodies."""
        return self._large.count + self._small.count

    def take(self, held: Held, count: int) -> None:
        """Adds `count` bytes that have arrived of a body. O(arriving bodies) per body cut off.

        Raises Unavailable if they do not fit or if the body was cut off before; the body then holds no bytes.
        """
        self.check(held)
        size = held.count + count
        self.give_back(held)
        share = self._small if size <= SMALL_BODY_BYTES else self._large
        while share.count + size > share.most:
            if not share.arriving:
                raise _refusal("was refused", share.most)
            self._cut(max(share.arriving, key=lambda other: other.count))
        held.share, held.count = share, size
        share.count += size
        share.arriving[held] = None

    def check(self, held: Held) -> None:
        """Raises Unavailable if the body has been cut off."""
        if held.cut:
            raise _refusal("had not arrived completely and was cut off", self._large.most)

    def arrived(self, held: Held) -> None:
        """Marks the body as complete: it is kept until `give_back`. Raises Unavailable if it has been cut off."""
        self.check(held)
        if held.share is not None:
            held.share.arriving.pop(held, None)

    def give_back(self, held: Held) -> None:
        """Frees the bytes of the body, when neither it nor data parsed from it is held. Idempotent."""
        if held.share is not None:
            held.share.arriving.pop(held, None)
            held.share.count -= held.count
        held.share, held.count = None, 0

    def _cut(self, held: Held) -> None:
        self.give_back(held)
        held.cut = True
        held.on_cut()


def _refusal(what: str, most: int) -> Unavailable:
    return Unavailable(
        f"The body {what}: the bodies of the requests at hand fill the {most} bytes that this server sets aside for "
        "them. Send the request again in a moment.",
        code="bodies_full",
        retry_after=RETRY_SECONDS,
    )
