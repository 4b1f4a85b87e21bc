"""Replicas and the order in which a request tries them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backend:
    """One replica that accepts requests now."""

    name: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"http://{self.host}:{self.port}"


class RoundRobin:
    """Round robin over the replicas; each request may try every replica once."""

    def __init__(self) -> None:
        self._turn = 0

    def order(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """All backends, starting with the next one in turn. O(n)."""
        if not backends:
            return ()
        start = self._turn % len(backends)
        self._turn += 1
        return (*backends[start:], *backends[:start])
