"""Room for the bodies that clients send: bounded bytes, shared so that those who send slowly keep out nobody else.

A body counts from its first byte to the moment when nothing is left of it. Small bodies have a reserve of their own,
so that a few large ones leave room for all the rest. Where bytes have no room, the largest body that is still arriving
is cut off and gives back its own: whoever asks has bytes here now, the others may have stalled. Only bodies that are
complete, and being worked on, keep a newcomer out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sluice_engine.server.errors import Unavailable

SMALL_BODY_BYTES: Final = 64 * 1024  # up to here a body has its place in the reserve
MAX_BODY_BYTES_AT_WORK: Final = 64 * 1024 * 1024  # parsed, a body takes several times its size
MAX_SMALL_BYTES_AT_WORK: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 1.0


@dataclass(eq=False, slots=True)
class Share:
    """Bytes that one bounded part of the room has given out."""

    most: int
    count: int = 0
    arriving: dict["Held", None] = field(default_factory=dict)  # may be cut off; who sent last comes last: of equals
    # the one that has been quiet for longest goes


@dataclass(eq=False, slots=True)
class Held:
    """The bytes of one body. `on_cut` is called, once, when it has to make room for others."""

    on_cut: Callable[[], None]
    count: int = 0
    cut: bool = False
    share: Share | None = None


class Room:
    """All bodies of one port."""

    def __init__(self, most: int = MAX_BODY_BYTES_AT_WORK, most_small: int = MAX_SMALL_BYTES_AT_WORK) -> None:
        self._large = Share(most)
        self._small = Share(most_small)

    @property
    def count(self) -> int:
        """Bytes of all bodies."""
        return self._large.count + self._small.count

    def take(self, held: Held, count: int) -> None:
        """So many more bytes of a body are here. Raises Unavailable, with nothing held any more, where there is no
        room for them, or where the body has been cut off before."""
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
        """Raises Unavailable where the body has been cut off."""
        if held.cut:
            raise _refusal("had not arrived completely and was cut off", self._large.most)

    def arrived(self, held: Held) -> None:
        """The body is complete and stays until it is given back. Raises Unavailable where it has been cut off."""
        self.check(held)
        if held.share is not None:
            held.share.arriving.pop(held, None)

    def give_back(self, held: Held) -> None:
        """Nothing is left of the body, nor of what was made from it. Idempotent."""
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
