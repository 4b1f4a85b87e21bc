"""Bounds the retries of a gateway to a share of its traffic, so that they cannot multiply an overload (Google's SRE book,
21)."""

from typing import Final

SHARE: Final = 0.1  # of all requests
RESERVE: Final = 10.0  # retries that a gateway without traffic may make


class RetryBudget:
    """A bucket of retries: each request adds a share of one, each retry takes one."""

    def __init__(self, share: float = SHARE, reserve: float = RESERVE) -> None:
        self._share, self._reserve = share, reserve
        self._left = reserve

    def request(self) -> None:
        """A request came."""
        self._left = min(self._reserve, self._left + self._share)

    @property
    def left(self) -> bool:
        """True if `take` would take one."""
        return self._left >= 1.0

    def take(self) -> bool:
        """Take one retry; False if none is left."""
        if not self.left:
            return False
        self._left -= 1.0
        return True
