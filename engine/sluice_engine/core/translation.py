"""Converts socket messages to scheduler requests, and scheduler outcomes to deltas."""

import secrets
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from sluice_engine import messages
from sluice_engine.backend.runner import StepResult
from sluice_engine.kvcache.event_log import KvEvent
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome


def request_of(message: messages.Submit | messages.Encode, model: LoadedModel) -> Request:
    """The scheduler request for a message. Raises ValueError for a token id outside the vocabulary or a task that the
    model does not serve.
    """
    if isinstance(message, messages.Encode):
        tokens = message.token_ids
    else:
        tokens = (*message.prompt_token_ids, *message.output_token_ids)
    if any(not 0 <= token < model.vocab_size for token in tokens):
        raise ValueError(f"a token id of the prompt lies outside the vocabulary of {model.vocab_size}")
    if isinstance(message, messages.Encode) != (model.pooled is not None):
        raise ValueError(f"this model serves the task {model.task}, and the request is for another task")
    return _pooling_request(message) if isinstance(message, messages.Encode) else _generation_request(message, model)


def delta_of(outcome: Outcome, result: StepResult) -> messages.Delta:
    """The socket message for one request's outcome of a step."""
    return messages.Delta(
        request_id=outcome.request_id,
        token_ids=outcome.token_ids,
        finish=outcome.finish,
        error=outcome.error,
        cached_tokens=outcome.cached_tokens if outcome.first else 0,
        queue_seconds=outcome.queue_seconds if outcome.first else 0.0,
        logprobs=result.logprobs.get(outcome.request_id, ())[: len(outcome.token_ids)],
        prompt_logprobs=result.prompt_logprobs.get(outcome.request_id, ()),
        vector=result.vectors.get(outcome.request_id, b""),
    )


def kv_events_of(events: Iterable[KvEvent]) -> messages.KvEvents:
    """The socket message for recorded events; successive removals are one."""
    found: list[messages.KvStored | messages.KvRemoved] = []
    for removed, group in groupby(events, lambda event: isinstance(event, int)):
        if removed:
            found.append(messages.KvRemoved(tuple(event for event in group if isinstance(event, int))))
        else:
            found += [messages.KvStored(*event) for event in group if not isinstance(event, int)]
    return messages.KvEvents(tuple(found))


def seed_of(requested: int | None) -> int:
    """The requested seed, or an unpredictable one if None."""
    return secrets.randbits(64) if requested is None else requested


def _generation_request(message: messages.Submit, model: LoadedModel) -> Request:
    params = message.params
    room = model.max_model_length - len(message.prompt_token_ids)
    request = Request(
        request_id=message.request_id,
        known=list(message.prompt_token_ids),
        max_tokens=room if params.max_tokens is None else params.max_tokens,
        arrived_at=message.arrived_at,
        stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else model.eos_ids),
        sampling=replace(params, seed=seed_of(params.seed)),
        priority=message.priority,
        tenant=message.tenant,
        ttft_target=message.ttft_target,
        itl_target=message.itl_target,
        offered_before=message.offered_before,
        waited=message.waited,
        last_attempt=message.last_attempt,
        cache_salt=message.cache_salt,
        prompt_tag=message.prompt_tag,
    )
    request.known += message.output_token_ids  # as of a preempted request: computed again, and not delivered again
    return request


def _pooling_request(message: messages.Encode) -> Request:
    return Request(
        request_id=message.request_id,
        known=list(message.token_ids),
        max_tokens=0,
        arrived_at=message.arrived_at,
        priority=message.priority,
        tenant=message.tenant,
        ttft_target=message.ttft_target,
        offered_before=message.offered_before,
        waited=message.waited,
        last_attempt=message.last_attempt,
        pooling=True,
        token_types=message.token_types,
    )
