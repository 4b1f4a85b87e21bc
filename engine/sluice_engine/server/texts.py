"""Many texts of one HTTP call: each a request of its own to the engine, which computes it whole; vectors in order.

A call may bring more texts than the queue holds, so that no more than half of what may run and wait is handed over at
once: a call of any size can be served, and others get in beside it. Whatever way the call leaves (answered, client
gone, refused, our fault), what the engine may still hold of it is cancelled.

In the books each text that was sent is a request. Where the engine refuses one, those that it had and had not answered
count as rejected for the same reason: they end with the call, and nobody aborted them.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from aiohttp import web

from sluice import contract
from sluice_engine import ipc
from sluice_engine.server.errors import ApiError, BadRequest, ContextTooLong, InternalError
from sluice_engine.server.fields import Object, integer, text
from sluice_engine.server.link import EngineGone, Stream
from sluice_engine.server.serving import Serving, offered_before, request_id_of, tenant_of
from sluice_engine.server.validate import MAX_PRIORITY, targets

INLINE_CHARACTERS: Final = 2048  # less is encoded on the loop: a thread costs more than it does
MAX_TEXTS: Final = 2048  # of one call, as OpenAI has it

log = logging.getLogger("sluice.http")
R = TypeVar("R")


class Text(NamedTuple):
    """One text to compute. `param` names it in errors."""

    param: str
    token_ids: tuple[int, ...]
    token_types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Urgency:
    """How the call's texts stand among others."""

    arrived_at: float
    priority: int  # −100..100
    ttft_target: float | None  # seconds; None: the engine's


@dataclass(slots=True)
class Computed:
    """What came of a call's texts: a vector each, in order, float32 in little-endian."""

    vectors: list[bytes]
    prompt_tokens: int
    queue_seconds: float  # the longest that one of them waited

    @property
    def usage(self) -> dict[str, int]:
        """OpenAI's usage: nothing is generated."""
        return {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        return {contract.HEADER_QUEUE_MS: str(round(self.queue_seconds * 1000))}


def urgency(body: Object, arrived_at: float) -> Urgency:
    """The fields that every call of texts may have. Raises BadRequest."""
    text(body, "user", 1024)
    return Urgency(arrived_at, integer(body, "priority", -MAX_PRIORITY, MAX_PRIORITY, 0) or 0, targets(body)[0])


async def offload(serving: Serving, characters: int, work: Callable[[], R]) -> R:
    """The result of `work` on so many characters, computed beside the loop where it would hold it up."""
    if characters <= INLINE_CHARACTERS:
        return work()
    return await asyncio.get_running_loop().run_in_executor(serving.threads, work)


def check_length(serving: Serving, given: Text) -> Text:
    """The text itself. Raises BadRequest for one that is empty, too long or no text of this model."""
    longest, width = serving.ready.max_model_length, serving.ready.vocab_size
    if not given.token_ids:
        raise BadRequest(f"{given.param} has no tokens.", param=given.param, code="invalid_value")
    if len(given.token_ids) > longest:
        raise too_long(given.param, str(len(given.token_ids)), longest)
    if max(given.token_ids) >= width:
        raise BadRequest(
            f"{given.param} holds a token id that is not below the vocabulary's size, {width}.",
            param=given.param,
            code="invalid_value",
        )
    return given


def check_characters(serving: Serving, param: str, content: str) -> None:
    """Raises ContextTooLong for a text that must be too long, whatever its tokens are."""
    fewest = serving.text.fewest_tokens(content)
    if fewest > serving.ready.max_model_length:
        raise too_long(param, f"at least {fewest}", serving.ready.max_model_length)


def too_long(param: str, tokens: str, longest: int) -> ContextTooLong:
    """A text beyond the model's positions: what, why, what to do."""
    return ContextTooLong(
        f"This model reads a text whole and has {longest} positions; {param} has {tokens} tokens. Shorten it to at "
        f"most {longest}, or split it.",
        param,
    )


async def compute(request: web.BaseRequest, serving: Serving, given: Sequence[Text], how: Urgency) -> Computed:
    """Vectors of the texts, in order. Raises Unavailable where the engine refuses one, InternalError where it fails
    one: a call is answered as a whole."""
    name, tenant = uuid.uuid4().hex, tenant_of(request)
    messages = [
        ipc.Encode(
            f"{name}-{index}", each.token_ids, how.arrived_at, each.token_types, how.priority, tenant, how.ttft_target
        )
        for index, each in enumerate(given)
    ]
    limits = serving.limits()
    waiting = iter(messages)
    first = tuple(islice(waiting, max(1, (limits.concurrency + limits.max_queue) // 2)))
    stream = Stream(len(first))
    vectors: dict[str, bytes] = {}
    queued = 0.0
    try:
        await _send(request, serving, first, stream)
        while len(vectors) < len(messages):
            deltas = await _take(request, serving, stream)
            for delta in deltas:
                if delta.finish != "stop":
                    log.error("request %s: the engine ended it: %s", delta.request_id, delta.error or delta.finish)
                    raise InternalError(request_id_of(request))
                vectors[delta.request_id] = delta.vector
                queued = max(queued, delta.queue_seconds)
            await _send(request, serving, islice(waiting, len(deltas)), stream)
    except ApiError:
        if stream.rejected is None:
            for message in messages:
                serving.metrics.ended(message.request_id, "error")
        raise
    except EngineGone as error:
        for message in messages:
            serving.metrics.ended(message.request_id, "error")
        raise InternalError(request_id_of(request)) from error
    finally:
        for message in messages:
            serving.link.cancel(message.request_id, "abort")
            if stream.rejected is not None:
                serving.metrics.rejected(message.request_id, stream.rejected.reason)
            serving.metrics.ended(message.request_id, "abort")
        if stream.rejected is not None:  # the whole call goes on to the next replica, and is counted there as a whole
            for _ in waiting:
                serving.metrics.refused(stream.rejected.reason, offered_before=offered_before(request))
    return Computed(
        [vectors[message.request_id] for message in messages], sum(len(each.token_ids) for each in given), queued
    )


async def _send(request: web.BaseRequest, serving: Serving, messages: Iterable[ipc.Encode], stream: Stream) -> None:
    some, again = tuple(messages), offered_before(request)
    for message in some:
        serving.metrics.started(message.names, message.arrived_at, len(message.token_ids), offered_before=again)
    await serving.link.submit(*some, stream=stream)


async def _take(request: web.BaseRequest, serving: Serving, stream: Stream) -> list[ipc.Delta]:
    try:
        deltas = await stream.take()
    except ApiError:
        raise
    except EngineGone as error:
        raise InternalError(request_id_of(request)) from error
    if (refused := stream.rejected) is not None:
        raise serving.refused(refused)
    return deltas
