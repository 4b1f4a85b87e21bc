"""Bounds the bytes of all request bodies that a gateway holds: each is kept until its answer ends, for a retry."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MOST_BYTES: Final = 256 * 1024 * 1024
MAX_BODY_BYTES: Final = 8 * 1024 * 1024  # of one body


class TooManyBytes(Exception):
    """The bodies in flight leave no room for this one."""


class BodyTooLarge(Exception):
    """One body is larger than any may be."""


class Reservation:
    """The room that one body has taken."""

    def __init__(self) -> None:
        self.size = 0


class BodyBudget:
    """Counts the bytes as they arrive: a length that is only announced takes no room."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self.held = 0

    @contextmanager
    def reservation(self) -> Iterator[Reservation]:
        """Gives the room back at the end."""
        reservation = Reservation()
        try:
            yield reservation
        finally:
            self.held -= reservation.size

    def take(self, reservation: Reservation, size: int) -> None:
        """More bytes of a body have arrived. Raises BodyTooLarge, TooManyBytes."""
        if reservation.size + size > MAX_BODY_BYTES:
            raise BodyTooLarge
        if self.held + size > self._most:
            raise TooManyBytes
        self.held += size
        reservation.size += size
