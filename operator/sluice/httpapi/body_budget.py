"""Budget for request bodies: bounded bytes, shared so that slow senders do not block other clients.

A body counts from its first byte until its last data is released. Small bodies have a budget of their own, so that a
few large bodies do not block them. If bytes do not fit, the largest body that is still arriving is cut off and its
bytes are freed: a sender that delivers bytes now takes precedence over one that may have stalled. Therefore only
complete bodies in processing can cause a rejection.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sluice.httpapi.errors import Unavailable

SMALL_BODY_BYTES: Final = 64 * 1024  # bodies up to this size use the small budget
MAX_BODY_BYTES_IN_USE: Final = 64 * 1024 * 1024  # a parsed body takes several times its size
MAX_SMALL_BYTES_IN_USE: Final = 16 * 1024 * 1024
RETRY_SECONDS: Final = 1.0


@dataclass(eq=False, slots=True)
class SizeClass:
    """The budget of small or of large bodies: `max_bytes`, and the bytes in use."""

    max_bytes: int
    count: int = 0
    # Incomplete bodies in the order of their last bytes; among those of equal size, the longest silent one is cut off.
    arriving: dict["BodyReservation", None] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class BodyReservation:
    """The bytes of one body. `on_evict` is called once, when the body is cut off to make room for others."""

    on_evict: Callable[[], None]
    count: int = 0
    evicted: bool = False
    size_class: SizeClass | None = None


class BodyBudget:
    """The budget for all bodies of one port. `max_bytes` and `max_small_bytes` apply to large and to small bodies."""

    def __init__(self, max_bytes: int = MAX_BODY_BYTES_IN_USE, max_small_bytes: int = MAX_SMALL_BYTES_IN_USE) -> None:
        self._large = SizeClass(max_bytes)
        self._small = SizeClass(max_small_bytes)

    @property
    def count(self) -> int:
        """Bytes of all bodies."""
        return self._large.count + self._small.count

    def reserve(self, reservation: BodyReservation, count: int) -> None:
        """Adds `count` bytes that have arrived of a body. O(arriving bodies) per body cut off.

        Raises Unavailable if they do not fit or if the body was cut off before; the body then holds no bytes.
        """
        self.check(reservation)
        size = reservation.count + count
        self.release(reservation)
        self._fit(reservation, size).arriving[reservation] = None

    def take(self, reservation: BodyReservation, count: int) -> None:
        """Adds a new body of `count` bytes that has arrived completely. Raises Unavailable if it does not fit."""
        self._fit(reservation, count)

    def check(self, reservation: BodyReservation) -> None:
        """Raises Unavailable if the body has been cut off."""
        if reservation.evicted:
            raise _budget_full("had not arrived completely and was cut off", self._large.max_bytes)

    def complete(self, reservation: BodyReservation) -> None:
        """Marks the body as complete: it is kept until `release`. Raises Unavailable if it has been cut off."""
        self.check(reservation)
        if reservation.size_class is not None:
            reservation.size_class.arriving.pop(reservation, None)

    def release(self, reservation: BodyReservation) -> None:
        """Frees the bytes of the body, when neither it nor data parsed from it is held. Idempotent."""
        if reservation.size_class is not None:
            reservation.size_class.arriving.pop(reservation, None)
            reservation.size_class.count -= reservation.count
        reservation.size_class, reservation.count = None, 0

    def _fit(self, reservation: BodyReservation, size: int) -> SizeClass:
        size_class = self._small if size <= SMALL_BODY_BYTES else self._large
        while size_class.count + size > size_class.max_bytes:
            if not size_class.arriving:
                raise _budget_full("was rejected", size_class.max_bytes)
            self._evict(max(size_class.arriving, key=lambda other: other.count))
        reservation.size_class, reservation.count = size_class, size
        size_class.count += size
        return size_class

    def _evict(self, reservation: BodyReservation) -> None:
        self.release(reservation)
        reservation.evicted = True
        reservation.on_evict()


def _budget_full(what: str, max_bytes: int) -> Unavailable:
    return Unavailable(
        f"The body {what}: the request bodies in progress use the {max_bytes} bytes that this server reserves for them. "
        "Send the request again shortly.",
        code="bodies_full",
        retry_after=RETRY_SECONDS,
    )
