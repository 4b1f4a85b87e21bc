"""One routing policy and its state: the turn among equal replicas, and the view of their caches."""

from collections.abc import Sequence

from sluice_gateway.routing.cache_view import CacheView
from sluice_gateway.routing.first_token import with_models
from sluice_gateway.routing.policies import COSTS, PolicyName
from sluice_gateway.routing.sessions import affinity
from sluice_gateway.routing.values import Prompt, Replica


class Router:
    """Orders replicas for prompts. Its decisions are a function of its calls."""

    def __init__(self, policy: PolicyName, caches: CacheView | None = None) -> None:
        self.policy = policy
        self.caches = CacheView() if caches is None else caches
        self._cost = COSTS.get(policy)
        self._turn = 0

    @property
    def reads_load(self) -> bool:
        """True if the policy reads the replicas' load."""
        return self._cost is not None

    def order(self, replicas: Sequence[Replica], prompt: Prompt) -> list[Replica]:
        """All replicas, the best first: ready ones before others, then the session's, then by the policy's cost.

        Among equal replicas, those of the gateway's zone come first, then the one with the fewest requests, then the next
        in turn.
        """
        if not replicas:
            return []
        start = self._turn % len(replicas)
        self._turn += 1
        turned = [*replicas[start:], *replicas[:start]]
        session = self._session_replica(turned, prompt) if prompt.session else None
        cost = self._cost
        if cost is None:
            return sorted(turned, key=lambda one: (not one.ready, one is not session))

        known = with_models(turned, prompt.tokens)
        costs = [cost(one, prompt, self.caches) for one in known]
        ranks = [
            (not one.ready, one is not session, costs[place], one.other_zone, one.running + one.waiting, place)
            for place, one in enumerate(turned)
        ]
        return [turned[rank[-1]] for rank in sorted(ranks)]

    def same_turn(self) -> None:
        """The next order is for the same request again: no replica loses its turn by it."""
        self._turn -= 1

    @staticmethod
    def _session_replica(replicas: Sequence[Replica], prompt: Prompt) -> Replica | None:
        ready = (one for one in replicas if one.ready)
        return max(ready, key=lambda one: affinity(prompt.session, one.name), default=None)

    @property
    def reads_caches(self) -> bool:
        """True if the policy reads the view of the replicas' caches."""
        return self.policy == "PrefixAware"

    def cached_tokens(self, name: str, prompt: Prompt) -> float:
        """Prompt tokens that the replica probably has cached, as far as the policy reads it: 0 under the others."""
        return self.caches.cached_tokens(name, prompt) if self.reads_caches else 0.0

    def uncached_tokens(self, name: str, prompt: Prompt) -> float:
        """Prompt tokens that the replica probably has to compute."""
        return prompt.tokens - self.cached_tokens(name, prompt)

    def sent(self, replica: Replica, prompt: Prompt) -> None:
        """The replica accepted the prompt."""
        if self.reads_caches:
            self.caches.sent(replica, prompt)
