"""Which replica the gateway tries first, and which after it.

Round robin is what `sluice up` and a Service do. Least loaded counts requests in flight. Prefix-aware sends a prompt
where most of its leading blocks were sent before, unless that replica has more than its share of tokens in flight
(consistent hashing with bounded loads, Mirrokni et al. 2018, as a rule), and the least loaded one then.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from sluice_sim.settings import Routing
from sluice_sim.traces.arrival import BLOCK_TOKENS, Arrival

MOST_BLOCKS: Final = 200_000  # remembered by the gateway, oldest use forgotten first: 100 M tokens
OVER: Final = 1.5  # times the mean load, the request itself included, that a replica may have and still be preferred


class Target(Protocol):
    """A ready replica as the gateway knows it."""

    @property
    def name(self) -> str:
        """Its own."""
        ...

    @property
    def requests(self) -> int:
        """In flight there."""
        ...

    @property
    def tokens(self) -> int:
        """Prompt tokens of those requests."""
        ...


AnyTarget = TypeVar("AnyTarget", bound=Target)


class Router:
    """One policy with its memory."""

    def __init__(self, policy: Routing) -> None:
        self._policy = policy
        self._turn = 0
        self._sent: OrderedDict[int, set[str]] = OrderedDict()  # block → replicas that were sent it

    @property
    def needs_load(self) -> bool:
        """Whether the replicas' present loads matter: those that do not need not be brought up to date."""
        return self._policy != "round_robin"

    def order(self, ready: Sequence[AnyTarget], arrival: Arrival) -> list[AnyTarget]:
        """All of them, the best first."""
        if not ready:
            return []
        start = self._turn % len(ready)
        self._turn += 1
        turned = [*ready[start:], *ready[:start]]
        if self._policy == "round_robin":
            return turned
        if self._policy == "least_loaded":
            return sorted(turned, key=lambda one: one.requests)
        return self._by_prefix(turned, arrival)

    def sent(self, arrival: Arrival, name: str) -> None:
        """The request was taken by this replica."""
        if self._policy != "prefix_aware":
            return
        for block in arrival.blocks:
            self._sent.setdefault(block, set()).add(name)
            self._sent.move_to_end(block)
        while len(self._sent) > MOST_BLOCKS:
            self._sent.popitem(last=False)

    def gone(self, name: str) -> None:
        """The replica's cache is no more."""
        for names in self._sent.values():
            names.discard(name)

    def _by_prefix(self, ready: list[AnyTarget], arrival: Arrival) -> list[AnyTarget]:
        known = self._known(ready, arrival)
        loaded = sorted(ready, key=lambda one: one.tokens - known[one.name] * BLOCK_TOKENS)
        mean = (sum(one.tokens for one in ready) + arrival.prompt) / len(ready)
        near = [one for one in loaded if known[one.name] and one.tokens <= OVER * mean]
        if not near:
            return sorted(ready, key=lambda one: one.tokens)
        best = max(near, key=lambda one: known[one.name])
        return [best, *(one for one in sorted(ready, key=lambda one: one.tokens) if one is not best)]

    def _known(self, ready: Sequence[Target], arrival: Arrival) -> dict[str, int]:
        """Per replica, how many leading blocks of the prompt it was sent before."""
        known = dict.fromkeys((one.name for one in ready), 0)
        still = set(known)
        for place, block in enumerate(arrival.blocks, start=1):
            still &= self._sent.get(block, set())
            if not still:
                break
            for name in still:
                known[name] = place
        return known
