"""Which replica is tried first, and which after it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backend:
    """One replica that may be sent requests now."""

    name: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"http://{self.host}:{self.port}"


class RoundRobin:
    """Turns through the replicas; each request sees every replica once, from its turn on."""

    def __init__(self) -> None:
        self._turn = 0

    def order(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """All backends, beginning with the one whose turn it is."""
        if not backends:
            return ()
        start = self._turn % len(backends)
        self._turn += 1
        return (*backends[start:], *backends[:start])
