"""Samples of one prompt: the first computes the prompt, the others wait for that and continue from its blocks.

Until then they are neither queued nor running. If the first ends before the prompt is computed, the next one computes
it.
"""

from collections import OrderedDict
from collections.abc import Iterator, KeysView, Sequence
from dataclasses import dataclass

from sluice_engine.request import Request


@dataclass(slots=True, eq=False)
class _Group:
    """Waiting samples, in order; an OrderedDict finds its first entry in O(1) however many were removed before."""

    first: str  # the request that computes the prompt
    waiting: OrderedDict[str, Request]


class SampleGroups:
    """Requests that wait for another one to compute the prompt that they share. O(1) for each request that is added,
    removed or looked up, whatever the number of groups."""

    def __init__(self) -> None:
        self._behind: dict[str, _Group] = {}  # by the request that computes the prompt; no empty groups
        self._group_of: dict[str, _Group] = {}  # by the waiting request

    def __len__(self) -> int:
        """Waiting requests."""
        return len(self._group_of)

    def __iter__(self) -> Iterator[Request]:
        """All waiting requests."""
        return (request for group in self._behind.values() for request in group.waiting.values())

    @property
    def leaders(self) -> KeysView[str]:
        """Ids of requests whose prompt other requests wait for."""
        return self._behind.keys()

    def attach(self, first: Request, others: Sequence[Request]) -> None:
        """Make `others` wait for `first`."""
        if others:
            group = _Group(first.request_id, OrderedDict((each.request_id, each) for each in others))
            self._behind[first.request_id] = group
            self._group_of.update(dict.fromkeys(group.waiting, group))

    def take(self, first: Request) -> list[Request]:
        """Removes and returns the requests that wait for `first`."""
        group = self._behind.pop(first.request_id, None)
        if group is None:
            return []
        for name in group.waiting:
            del self._group_of[name]
        return list(group.waiting.values())

    def promote(self, first: Request) -> Request | None:
        """After the end of `first`, the next sample of its group replaces it, and the others wait for that one. Returns the
        next sample; None where no request waits for `first`."""
        group = self._behind.pop(first.request_id, None)
        if group is None:
            return None
        name, successor = group.waiting.popitem(last=False)
        del self._group_of[name]
        if group.waiting:
            group.first = name
            self._behind[name] = group
        return successor

    def discard(self, request: Request) -> bool:
        """Remove a waiting request. Returns whether it was one."""
        group = self._group_of.pop(request.request_id, None)
        if group is None:
            return False
        del group.waiting[request.request_id]
        if not group.waiting:
            del self._behind[group.first]
        return True
