"""Samples of one prompt: the first computes it, the others wait for that and go on from its blocks.

Until then they are neither in the queue nor running. If the first leaves before the prompt is computed, the next one
takes its place.
"""

from collections.abc import Iterator, KeysView, Sequence

from sluice_engine.request import Request


class Siblings:
    """Requests that wait for another to compute the prompt that they share."""

    def __init__(self) -> None:
        self._behind: dict[str, list[Request]] = {}  # by whom they wait for; no empty lists

    def __len__(self) -> int:
        """Requests that wait behind another."""
        return sum(map(len, self._behind.values()))

    def __iter__(self) -> Iterator[Request]:
        """All of them."""
        return (request for group in self._behind.values() for request in group)

    @property
    def leaders(self) -> KeysView[str]:
        """Ids of requests that others wait for."""
        return self._behind.keys()

    def attach(self, first: Request, others: Sequence[Request]) -> None:
        """From now on `others` wait for `first`."""
        if others:
            self._behind[first.request_id] = list(others)

    def take(self, first: Request) -> list[Request]:
        """Those that wait for `first`, who do so no longer."""
        return self._behind.pop(first.request_id, [])

    def discard(self, request: Request) -> bool:
        """The request waits no longer; says whether it did."""
        for first, group in self._behind.items():
            if request in group:
                group.remove(request)
                if not group:
                    del self._behind[first]
                return True
        return False
