"""The fleet behind one gateway: which replicas there are, in which order a request tries them, and what comes back."""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sluice_gateway.peers.sent_prompts import SentPrompts
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.kv_events import Begun, KvEvent, Removed, Stored
from sluice_gateway.replicas.load import Load
from sluice_gateway.replicas.state import SILENT, ReplicaState, fault_kind
from sluice_gateway.routing import Canary, Prompt, Replica, Router, Routing
from sluice_gateway.routing.awaited_prompts import AwaitedPrompts
from sluice_gateway.routing.cache_view import CacheView
from sluice_gateway.routing.first_token import own_prefill_seconds, seconds_to_first_token
from sluice_gateway.routing.prefix_hashes import MAX_STEPS
from sluice_gateway.routing.revisions import by_revision
from sluice_gateway.routing.step_ties import StoredPrompt

FIRST_TOKENS_PER_BYTE: Final = 0.25  # of English text, until answers have said more
LEAST_BYTES: Final = 1024  # of a prompt that says something of the rate: the template adds tokens to a short one
TOKENS_PER_BYTE: Final = (0.02, 2.0)  # bounds of what an answer may say
_SMOOTHING: Final = 0.05  # of the newest answer

log = logging.getLogger("sluice.gateway")


class UnknownModel(Exception):
    """No replica serves the model. The message lists the names."""


@dataclass(slots=True)
class Attempt:
    """A request at one replica. `expected`: tokens of its prompt that were thought to be cached there. `tag`: the prompt's
    name in the replica's events; "" where these are not followed. `predicted`: seconds to its first token by the replica's
    document; None without a step-time model.
    """

    state: ReplicaState
    prompt: Prompt
    expected: float
    tag: str = ""
    unanswered: bool = True
    begun_at: float = 0.0
    predicted: float | None = None
    ended: bool = False


class Fleet:
    """The replicas that `backends()` returns at the moment of each call."""

    def __init__(
        self,
        backends: Callable[[], Sequence[Backend]],
        routing_of: Callable[[str | None], Routing] = lambda _: Routing(),
        on_fault: Callable[[str], None] = lambda _: None,
        models: Callable[[], Collection[str] | None] = lambda: None,
        canaries: Callable[[], Mapping[str, Canary]] = dict,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`routing_of(model)` is how the model's requests are routed, those without a known model for None. It may change.

        `on_fault` is told the kind of each fault that takes a replica out.

        `models()` are all models that there are, those without a replica too; None: the replicas say which.
        `canaries()` are the canary revisions by the model's name.
        """
        self.clock = clock
        self._models = models
        self._canaries = canaries
        self._routing_of = routing_of
        self.caches = CacheView()
        self._routers: dict[str | None, Router] = {}  # by model, each with a turn of its own
        self._awaited = AwaitedPrompts(uuid.uuid4().hex[:12])
        self.sent_prompts = SentPrompts()
        self._is_shared = False
        self._on_fault = on_fault
        self.tokens_per_byte = FIRST_TOKENS_PER_BYTE
        self.on_room: Callable[[], None] = lambda: None  # called when a replica may have room for a request
        self._backends = backends
        self._backends_seen: tuple[Backend, ...] = ()
        self._states: dict[str, ReplicaState] = {}

    def states(self) -> list[ReplicaState]:
        """All present replicas. What was known of replaced or removed ones is forgotten."""
        present = tuple(self._backends())
        if present != self._backends_seen:  # seldom: this runs several times per request
            kept, self._backends_seen = self._states, present
            self._states = {
                each.name: known if (known := kept.get(each.name)) and known.backend == each else ReplicaState(each)
                for each in present
            }
            for name, state in kept.items():
                if self._states.get(name) is not state:
                    self.caches.forget(name)
        return list(self._states.values())

    def shared_by(self, gateways: int) -> None:
        """So many gateways send requests to the replicas now: the others ask for what this one has sent."""
        self._is_shared = gateways > 1

    def sent_elsewhere(self, replica: str, prompt: Prompt) -> None:
        """Another gateway has sent the prompt to the replica."""
        state = self._states.get(replica)
        if state is not None:
            self._router(state.backend.model).sent(state.replica(), prompt)

    def ready(self, model: str | None = None, *, is_asked: bool = False) -> bool:
        """Whether a replica can be sent requests: for the model, where all models are known, else for any. `is_asked`: one
        that was asked for its load, which has its limit."""
        named = None if self._models() is None else model
        return any(state.ready and state.is_asked >= is_asked and state.serves(named) for state in self.states())

    def models(self) -> dict[str, Backend]:
        """One ready replica per model, by the model's name."""
        found: dict[str, Backend] = {}
        for state in self.states():
            if state.load is not None and state.ready and state.serves(state.load.model):
                found.setdefault(state.load.model, state.backend)
        return found

    def routing(self, model: str | None) -> Routing:
        """How requests for the model are routed."""
        return self._routing_of(self._known(model))

    def reads_cache(self, state: ReplicaState) -> bool:
        """Whether the policy of the replica's model reads what the replica has cached."""
        return self.routing(state.backend.model).policy == "PrefixAware"

    def _known(self, model: str | None) -> str | None:
        """The model if it is one of all known ones; a request that names none is for the only one."""
        known = self._models() or ()
        if model is None and len(known) == 1:
            return next(iter(known))
        return model if model in known else None

    def _router(self, model: str | None) -> Router:
        """The router of the model, by its present policy."""
        name = self._known(model)
        policy, router = self._routing_of(name).policy, self._routers.get(name)
        if router is None or router.policy != policy:
            present = {None, *(self._models() or ())}
            self._routers = {each: kept for each, kept in self._routers.items() if each in present}
            router = self._routers[name] = Router(policy, self.caches)
        return router

    def has_canary(self) -> bool:
        """Whether a model has a canary revision, so that prompts need a draw."""
        return bool(self._canaries())

    def canary(self, model: str | None) -> Canary | None:
        """The canary revision of the model; a request that names none is for the only one."""
        found = self._canaries()
        if not found:
            return None
        return next(iter(found.values())) if model is None and len(found) == 1 else found.get(model or "")

    def order(self, prompt: Prompt, model: str | None, tried: Collection[str] = ()) -> list[ReplicaState]:
        """The replicas of the model that are not among the tried ones, the best first; empty if none at all is ready.

        Those that are not ready come last in their revision; those with a fault are left out, and those that fail requests
        while their revision has another.

        Raises UnknownModel.
        """
        states, known = self.states(), self._models()
        if known is not None and model is not None and model not in known:
            raise _unknown(known)
        serving = {state.backend.name: state for state in states if state.serves(model)}
        counted = states if known is None or model is None else serving.values()
        if not any(state.ready for state in counted):
            return []
        if not serving:
            raise _unknown({state.load.model for state in states if state.load is not None})
        left = [state.replica() for name, state in serving.items() if state.fault is None and name not in tried]
        canary, router = self.canary(model), self._router(model)
        if tried:
            router.same_turn()
        if canary is None:
            return [serving[replica.name] for replica in router.order(self._unfailing(left), prompt)]
        groups = filter(None, by_revision(left, canary, prompt.draw))
        ordered = [router.order(self._unfailing(group), prompt) for group in groups]
        for _ in ordered[1:]:
            router.same_turn()
        return [serving[replica.name] for replica in chain.from_iterable(ordered)]

    def _unfailing(self, replicas: list[Replica]) -> list[Replica]:
        """The replicas without those that fail requests, as long as a ready one is left."""
        now = self.clock()
        failing = {name for name, state in self._states.items() if state.record.is_failing(now)}
        kept = [one for one in replicas if one.name not in failing] if failing else replicas
        return kept if any(one.ready for one in kept) else replicas

    def has_other(self, model: str | None, tried: Collection[str]) -> bool:
        """Whether a replica of the model that is not among the tried ones is ready."""
        return any(state.ready and state.serves(model) and state.backend.name not in tried for state in self.states())

    def begin(self, state: ReplicaState, prompt: Prompt) -> Attempt:
        """The prompt is being sent to the replica; the caller ends the attempt by `end`, whatever happens.

        Its prefix counts as cached from now on, so that the next request with this prefix follows it.
        """
        router = self._router(state.backend.model)
        expected = router.cached_tokens(state.backend.name, prompt)
        replica = state.replica()
        predicted = _predicted(state, replica, prompt, expected)
        attempt = Attempt(state, prompt, expected, begun_at=self.clock(), predicted=predicted)
        if self._present(state):
            router.sent(replica, prompt)
            if self._is_shared and prompt.steps:
                self.sent_prompts.add(state.backend.name, prompt)
            if state.is_followed and 0 < len(prompt.steps) < MAX_STEPS:  # of a longer prompt the length is not known
                attempt.tag = self._awaited.add(state.backend.name, prompt)
        state.in_flight += 1
        state.prompt_tokens += prompt.tokens
        state.uncached_tokens += prompt.tokens - expected
        return attempt

    def first_byte(self, attempt: Attempt) -> None:
        """The prompt is computed, or will never be. Idempotent."""
        if attempt.unanswered:
            attempt.unanswered = False
            attempt.state.unanswered.pop(id(attempt), None)
            attempt.state.prompt_tokens -= attempt.prompt.tokens
            attempt.state.uncached_tokens -= attempt.prompt.tokens - attempt.expected
            attempt.prompt = attempt.prompt._replace(steps=())  # they are large for a long prompt, and not needed again

    def begun(self, attempt: Attempt, status: int, *, is_stream: bool) -> None:
        """The replica's answer has begun. Only a stream begins with the first token; another answer has all of them."""
        if status >= 400:
            self.rejected(attempt)
        self.first_byte(attempt)
        state, now = attempt.state, self.clock()
        if status >= 500:
            if state.record.failed(now):
                log.warning("replica %s fails requests: others get them for now", state.backend.name)
                self._forget_cache(state)
            return
        state.record.succeeded()
        is_measured = is_stream and status == 200 and attempt.predicted is not None
        if is_measured and state.record.first_byte(attempt.predicted or 0.0, now - attempt.begun_at):
            self._log_record(state)

    def _log_record(self, state: ReplicaState) -> None:
        name, ratio = state.backend.name, state.record.ratio
        if state.record.is_contradicted:
            log.warning("replica %s answers %.0f times later than its load predicts: its load is not used", name, ratio)
        else:
            log.warning("replica %s answers as its load predicts: its load is used again", name)

    def rejected(self, attempt: Attempt) -> None:
        """The replica has not computed the prompt, so that it has not cached it either."""
        self._awaited.drop(attempt.tag)
        if self._present(attempt.state):
            self.caches.retract(attempt.state.backend.name, attempt.prompt, attempt.expected)

    def end(self, attempt: Attempt) -> None:
        """The replica has answered completely or not at all. Idempotent."""
        if attempt.ended:
            return
        attempt.ended = True
        if attempt.unanswered:
            self.rejected(attempt)
        self.first_byte(attempt)
        attempt.state.in_flight -= 1
        if not attempt.state.in_flight:  # no error of rounding outlives an idle moment
            attempt.state.prompt_tokens = attempt.state.uncached_tokens = 0.0
        self.on_room()

    def answered(self, attempt: Attempt, cached: float, tokens: float) -> None:
        """The replica found `cached` of the prompt's `tokens` tokens in its cache."""
        if self._present(attempt.state):
            self.caches.answered(attempt.state.backend.name, attempt.prompt, attempt.expected, cached)
        size = attempt.prompt.tokens / self.tokens_per_byte
        if size >= LEAST_BYTES and tokens >= 1.0:
            rate = min(max(tokens / size, TOKENS_PER_BYTE[0]), TOKENS_PER_BYTE[1])
            self.tokens_per_byte += _SMOOTHING * (rate - self.tokens_per_byte)

    def out(self, state: ReplicaState, fault: str) -> None:
        """Use the replica no more until a probe succeeds; its cache is thought to be lost."""
        if state.fault != fault:
            log.warning("replica %s is out: %s", state.backend.name, fault)
            self._on_fault(fault_kind(fault))
        state.fault = fault
        self._forget_cache(state)
        if fault == SILENT:
            for tell in list(state.unanswered.values()):
                tell(True)

    def back(self, state: ReplicaState, load: Load | None) -> None:
        """A probe succeeded."""
        if state.fault is not None:
            log.warning("replica %s is back", state.backend.name)
            for tell in list(state.unanswered.values()):
                tell(False)
        state.fault = None
        state.loaded(load)
        self.on_room()

    def _follow(self, state: ReplicaState, engine: str) -> None:
        """The replica's events of its KV cache arrive from now on."""
        if state.engine not in ("", engine):  # it has been restarted
            self.caches.forget(state.backend.name)
        state.engine, state.is_followed = engine, True

    def unfollow(self, state: ReplicaState) -> None:
        """The replica's events have ended."""
        state.is_followed = False
        if self._present(state):
            self.caches.unfollow(state.backend.name)

    def kv_event(self, state: ReplicaState, event: KvEvent) -> None:
        """Something has happened in the replica's KV cache."""
        name, caches = state.backend.name, self.caches
        if not self._present(state):
            return
        if isinstance(event, Begun):
            self._follow(state, event.engine)
        elif isinstance(event, Stored):
            prompt = self._awaited.take(name, event.prompt)
            if prompt is not None:
                caches.stored(name, prompt, StoredPrompt(event.tokens, event.block_tokens, event.blocks))
        elif isinstance(event, Removed):
            caches.removed(name, event.blocks)
        else:
            caches.unfollow(name)

    def _forget_cache(self, state: ReplicaState) -> None:
        if self._present(state):
            self.caches.forget(state.backend.name)

    def _present(self, state: ReplicaState) -> bool:
        """False if the replica has been removed or replaced: a late answer of it says nothing of the present one."""
        return self._states.get(state.backend.name) is state


def _predicted(state: ReplicaState, replica: Replica, prompt: Prompt, cached: float) -> float | None:
    """By the replica's document, also while its answers contradict that."""
    if state.load is None or state.load.step_model is None:
        return None
    if state.record.is_contradicted:
        replica = state.published(state.load)
    own = own_prefill_seconds(replica, prompt.tokens, cached)
    return seconds_to_first_token(replica, prompt.tokens, cached, own)


def _unknown(names: Collection[str]) -> UnknownModel:
    there_is = f"there is {', '.join(sorted(names))}" if names else "there is none yet"
    return UnknownModel(f"The model does not exist; {there_is}.")
