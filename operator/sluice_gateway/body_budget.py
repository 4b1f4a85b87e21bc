"""Bounds the bytes of all request bodies that a gateway holds: each is kept until its answer ends, for a retry."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MOST_BYTES: Final = 256 * 1024 * 1024
MAX_BODY_BYTES: Final = 8 * 1024 * 1024  # of one body


class TooManyBytes(Exception):
    """The bodies in flight leave no room for this one."""


class Reservation:
    """The room of one body."""

    def __init__(self, size: int) -> None:
        self.size = size


class BodyBudget:
    """Counts the reserved bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self.reserved = 0

    @contextmanager
    def reserve(self, announced: int | None) -> Iterator[Reservation]:
        """Room for a body of the announced length; of the longest allowed one where none is. Raises TooManyBytes."""
        held = Reservation(MAX_BODY_BYTES if announced is None else announced)
        if self.reserved + held.size > self._most:
            raise TooManyBytes
        self.reserved += held.size
        try:
            yield held
        finally:
            self.reserved -= held.size

    def arrived(self, held: Reservation, size: int) -> None:
        """The body is complete and has `size` bytes."""
        self.reserved += size - held.size
        held.size = size
