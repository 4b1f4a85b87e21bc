"""The order in which the gateway tries the replicas.

`sluice up` and a Service use round robin. Least loaded counts requests in flight. Prefix-aware weighs, per replica, the
cached prompt tokens (estimated from the prompts sent to it before) against its waiting prompt tokens.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from sluice_sim.cluster.scenario import Routing
from sluice_sim.traces.arrival import BLOCK_TOKENS, Arrival

MAX_REMEMBERED_BLOCKS: Final = 200_000  # prefix blocks that the gateway remembers (LRU): 100 M tokens
# Weight of a waiting prompt token against a recomputed one: a recomputed token also takes memory from other requests.
WAITING_TOKEN_WEIGHT: Final = 0.05
ATTENTION: Final = 32_768.0  # prompt length (tokens) at which attention costs as much as the per-token work


class Target(Protocol):
    """A ready replica as the gateway sees it."""

    @property
    def name(self) -> str:
        """The pod's name."""
        ...

    @property
    def requests(self) -> int:
        """Requests in flight."""
        ...

    @property
    def pending_prefill_tokens(self) -> int:
        """Prompt tokens still to be computed for requests without a first token, by `Router.load`."""
        ...


AnyTarget = TypeVar("AnyTarget", bound=Target)


class Router:
    """One routing policy and its state."""

    def __init__(self, policy: Routing) -> None:
        self._policy = policy
        self._turn = 0
        self._sent: OrderedDict[int, set[str]] = OrderedDict()  # block → replicas that were sent it

    @property
    def needs_load(self) -> bool:
        """True if the policy reads the replicas' present loads, so that they must be brought up to date."""
        return self._policy != "round_robin"

    def order(self, ready: Sequence[AnyTarget], arrival: Arrival) -> list[AnyTarget]:
        """All ready replicas, the best first."""
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

    def record_sent(self, arrival: Arrival, name: str) -> None:
        """Record that the replica `name` accepted the request."""
        if self._policy != "prefix_aware":
            return
        for block in arrival.blocks:
            self._sent.setdefault(block, set()).add(name)
            self._sent.move_to_end(block)
        while len(self._sent) > MAX_REMEMBERED_BLOCKS:
            self._sent.popitem(last=False)

    def load(self, arrival: Arrival, replica: Target) -> int:
        """Prompt tokens that the replica must compute for the request: all but the leading ones it was sent before."""
        if self._policy != "prefix_aware":
            return arrival.prompt
        return max(1, arrival.prompt - self._known([replica], arrival)[replica.name] * BLOCK_TOKENS)

    def forget(self, name: str) -> None:
        """Forget the prefix cache of a removed or restarted replica."""
        for names in self._sent.values():
            names.discard(name)

    def _by_prefix(self, ready: list[AnyTarget], arrival: Arrival) -> list[AnyTarget]:
        known = self._known(ready, arrival)

        def cost(one: AnyTarget) -> tuple[float, int]:
            spared = known[one.name] * BLOCK_TOKENS
            return (
                WAITING_TOKEN_WEIGHT * one.pending_prefill_tokens - spared * (1.0 + spared / ATTENTION),
                one.requests,
            )

        return sorted(ready, key=cost)

    def _known(self, ready: Sequence[Target], arrival: Arrival) -> dict[str, int]:
        """Number of leading blocks of the prompt that each replica was sent before, by name."""
        known = dict.fromkeys((one.name for one in ready), 0)
        still = set(known)
        for place, block in enumerate(arrival.blocks, start=1):
            still &= self._sent.get(block, set())
            if not still:
                break
            for name in still:
                known[name] = place
        return known
