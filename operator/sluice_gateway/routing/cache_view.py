"""What each replica probably has in its prefix cache, known from the prompts that were sent to it.

Per replica an LRU list of prefix hashes, as long as the replica's KV cache: an engine evicts in the same order. A prompt's
last steps age before its first ones, which other prompts share. An answer says how much of its prompt was really cached.
If that is less than expected, the cache holds less than assumed (running requests and other gateways use it too), so the
list becomes shorter by `SHRINK`. It grows back slowly while the expectation is right.

Where a replica's events are followed, they take the place of these corrections: they name the blocks in which a prompt is
stored, and those that leave.
"""

from collections.abc import Iterable
from typing import Final

from sluice_gateway.routing.replica_cache import ReplicaCache
from sluice_gateway.routing.step_ties import StoredPrompt, step_ties
from sluice_gateway.routing.values import Prompt, Replica

MAX_STEPS: Final = 262_144  # in all lists; about 40 MB, and 80 more where the blocks of all of them are known
SHRINK: Final = 0.9
GROW: Final = 1.01
LEAST_SHARE: Final = 0.1


class CacheView:
    """The probable caches of all replicas. Its memory is bounded by MAX_STEPS."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self._max_steps = max_steps
        self._caches: dict[str, ReplicaCache] = {}

    def __len__(self) -> int:
        """Number of hashes in all lists."""
        return sum(len(cache) for cache in self._caches.values())

    def cached_tokens(self, name: str, prompt: Prompt) -> float:
        """Leading tokens of the prompt that the replica probably has cached. The last token is always computed."""
        cache = self._caches.get(name)
        if cache is None:
            return 0.0
        return max(0.0, min(cache.leading_tokens(prompt.steps, prompt.step_tokens), prompt.tokens - 1.0))

    def sent(self, replica: Replica, prompt: Prompt) -> None:
        """The replica was sent the prompt, here or by another gateway: it will have computed, and cached, all of it."""
        if not prompt.steps:
            return
        cache = self._caches.get(replica.name)
        if cache is None:
            cache = self._caches[replica.name] = ReplicaCache()
            for other in self._caches.values():
                other.use((), self._max_steps // len(self._caches))
        cache.use(prompt.steps, self._most(cache, replica, prompt))

    def retract(self, name: str, prompt: Prompt, expected: float) -> None:
        """The replica rejected the prompt, so it has cached no more than the `expected` tokens of before."""
        cache = self._caches.get(name)
        if cache is not None:
            cache.retract(prompt.steps[round(expected / prompt.step_tokens) :])

    def answered(self, name: str, prompt: Prompt, expected: float, cached: float) -> None:
        """The replica had `cached` tokens of the prompt in its cache, where `expected` were thought to be."""
        cache = self._caches.get(name)
        if cache is None or cache.is_followed or expected <= 0.0:
            return
        factor = SHRINK if cached < expected - prompt.step_tokens else GROW
        cache.share = min(1.0, max(LEAST_SHARE, cache.share * factor))

    def stored(self, name: str, prompt: Prompt, stored: StoredPrompt) -> None:
        """The replica has computed the prompt, and says where it is."""
        cache = self._caches.get(name)
        if cache is not None:
            cache.stored(prompt.steps, step_ties(prompt, stored))

    def removed(self, name: str, blocks: Iterable[int]) -> None:
        """These blocks have left the replica's cache."""
        cache = self._caches.get(name)
        if cache is not None:
            cache.removed(blocks)

    def unfollow(self, name: str) -> None:
        """The replica's events have ended, or some were lost."""
        cache = self._caches.get(name)
        if cache is not None:
            cache.unfollow()

    def forget(self, name: str) -> None:
        """The replica is gone, or its cache is."""
        self._caches.pop(name, None)

    def _most(self, cache: ReplicaCache, replica: Replica, prompt: Prompt) -> int:
        fair = self._max_steps // len(self._caches)
        if replica.kv_total <= 0.0:
            return fair
        share = 1.0 if cache.is_followed else cache.share
        return min(fair, int(share * replica.kv_total / prompt.step_tokens))
