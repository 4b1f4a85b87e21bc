"""Which replica the gateway tries first, and which after it.

Round robin is what `sluice up` and a Service do. Least loaded counts requests in flight. Prefix-aware weighs, per
replica, the prompt tokens that need not be computed again (by what it was sent before) against those that wait there to
be computed; the replica that the operator named as the next to leave (its pod-deletion-cost says so) gets no
conversation that it does not know best.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from sluice_sim.settings import Routing
from sluice_sim.traces.arrival import BLOCK_TOKENS, Arrival

MOST_BLOCKS: Final = 200_000  # remembered by the gateway, oldest use forgotten first: 100 M tokens
WAIT: Final = (
    0.05  # what a prompt token ahead counts against one computed twice: that one also takes memory from others
)
ATTENTION: Final = 32_768.0  # prompt tokens at which attention to each other costs as much again as they do themselves


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
        """Prompt tokens to be computed for those that have no first token yet, by `Router.load`."""
        ...


AnyTarget = TypeVar("AnyTarget", bound=Target)


class Router:
    """One policy with its memory."""

    def __init__(self, policy: Routing) -> None:
        self.retiring: str | None = None  # `Decision.retiring`
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

    def load(self, arrival: Arrival, replica: Target) -> int:
        """Prompt tokens that the replica would have to compute for it: all but those that it was sent before."""
        if self._policy != "prefix_aware":
            return arrival.prompt
        return max(1, arrival.prompt - self._known([replica], arrival)[replica.name] * BLOCK_TOKENS)

    def gone(self, name: str) -> None:
        """The replica's cache is no more."""
        for names in self._sent.values():
            names.discard(name)

    def _by_prefix(self, ready: list[AnyTarget], arrival: Arrival) -> list[AnyTarget]:
        known = self._known(ready, arrival)
        elsewhere = max((blocks for name, blocks in known.items() if name != self.retiring), default=0)

        def cost(one: AnyTarget) -> tuple[bool, float, int]:
            left_out = one.name == self.retiring and known[one.name] <= elsewhere
            spared = known[one.name] * BLOCK_TOKENS
            return left_out, WAIT * one.tokens - spared * (1.0 + spared / ATTENTION), one.requests

        return sorted(ready, key=cost)

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
