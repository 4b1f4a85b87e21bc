"""Computes the texts of one HTTP call: each text is one request to the engine, and the vectors return in order.

A call may hold more texts than the queue. At most half of the running and waiting capacity is submitted at once, so
that a call of any size completes and other clients' requests are admitted beside it. However the call ends (finished,
client disconnect, rejected, engine error), its remaining requests are cancelled.

In the metrics each submitted text is one request. If the engine rejects one text, the call's submitted and unfinished
texts count as rejected for the same reason: they end with the call, and no client aborted them.
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
from sluice.auth.caller import caller_of
from sluice_engine import messages
from sluice_engine.server.api.fields import Object, invalid
from sluice_engine.server.api.generation.accepted_fields import TRUNCATE, TRUNCATION, truncation
from sluice_engine.server.api.generation.request_schema import MODEL, PRIORITY, SLO, targets
from sluice_engine.server.api.request_fields import Text, fields
from sluice_engine.server.context import Serving, is_last_attempt, offered_before, request_id_of, waited_before
from sluice_engine.server.engine.client import EngineFailed, Stream
from sluice_engine.server.errors import ApiError, BadRequest, ContextTooLong, InternalError
from sluice_engine.server.request_log import entry_of
from sluice_engine.server.usage import Usage
from sluice_engine.text.truncation import NoRoom

INLINE_CHARACTERS: Final = 2048  # shorter texts are encoded on the event loop: a thread costs more than they do
MAX_TEXTS: Final = 2048  # per call; OpenAI's limit
USER: Final = Text("user", 1024)
TEXT_FIELDS: Final = {**fields(MODEL, USER, PRIORITY, SLO), **TRUNCATION}  # of all calls of texts

log = logging.getLogger("sluice.http")
R = TypeVar("R")


class TokenizedText(NamedTuple):
    """One text to compute. `param` is its name in errors."""

    param: str
    token_ids: tuple[int, ...]
    token_types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulingFields:
    """Scheduling attributes of the call's texts. `arrived_at` is in monotonic seconds."""

    arrived_at: float
    priority: int  # −100..100
    ttft_target: float | None  # seconds; None: the engine's target


@dataclass(slots=True)
class BatchResult:
    """The results of a call: one vector per text, in order, float32 in little-endian."""

    vectors: list[bytes]
    prompt_tokens: int
    queue_seconds: float  # the longest queue time of the texts

    @property
    def usage(self) -> dict[str, int]:
        """OpenAI's usage object; no tokens are generated."""
        return {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        return {contract.HEADER_QUEUE_MS: str(round(self.queue_seconds * 1000))}


def scheduling_fields(body: Object, arrived_at: float) -> SchedulingFields:
    """Parses the scheduling fields that all calls of texts accept. Raises BadRequest."""
    USER.of(body)
    return SchedulingFields(arrived_at, PRIORITY.of(body) or 0, targets(body)[0])


def most_tokens(body: Object, longest: int) -> int | None:
    """How many tokens each text is shortened to; None: a text that is too long is an error. Raises BadRequest."""
    most = truncation(body)
    if most is None:
        return None
    return longest if most == -1 else min(most, longest)


def no_room(error: NoRoom) -> BadRequest:
    """Returns the error for a truncation that would leave nothing of a text."""
    return invalid(TRUNCATE.name, f"must be at least {error.least}, for the special tokens and one token of each text")


async def offload(serving: Serving, characters: int, work: Callable[[], R]) -> R:
    """Returns the result of `work`, computed in a thread if `characters` is large enough to block the event loop."""
    if characters <= INLINE_CHARACTERS:
        return work()
    return await asyncio.get_running_loop().run_in_executor(serving.threads, work)


def check_length(serving: Serving, tokenized: TokenizedText) -> TokenizedText:
    """Returns `tokenized`. Raises BadRequest if it is empty or has a token id outside the vocabulary, ContextTooLong if too
    long.
    """
    longest, width = serving.ready.max_model_length, serving.ready.vocab_size
    if not tokenized.token_ids:
        raise BadRequest(f"{tokenized.param} has no tokens.", param=tokenized.param, code="invalid_value")
    if len(tokenized.token_ids) > longest:
        raise too_long(tokenized.param, str(len(tokenized.token_ids)), longest)
    if max(tokenized.token_ids) >= width:
        raise BadRequest(
            f"{tokenized.param} holds a token id that is not below the vocabulary's size, {width}.",
            param=tokenized.param,
            code="invalid_value",
        )
    return tokenized


def check_characters(serving: Serving, param: str, content: str) -> None:
    """Raises ContextTooLong if the text exceeds the context length for every possible tokenization."""
    fewest = serving.text.fewest_tokens(content)
    if fewest > serving.ready.max_model_length:
        raise too_long(param, f"at least {fewest}", serving.ready.max_model_length)


def too_long(param: str, tokens: str, longest: int) -> ContextTooLong:
    """Returns the error for a text beyond the model's positions. It states the fault, the reason and the remedy."""
    return ContextTooLong(
        f"This model encodes a text in one pass and has {longest} positions; {param} has {tokens} tokens. Shorten it to "
        f"at most {longest} tokens, or split it.",
        param,
    )


async def compute(
    request: web.BaseRequest, serving: Serving, texts: Sequence[TokenizedText], scheduling: SchedulingFields
) -> BatchResult:
    """Returns the vectors of the texts, in order.

    Raises Unavailable if the engine rejects a text and InternalError if it fails on one: a call succeeds or fails as a
    whole.
    """
    caller, tokens = caller_of(request), sum(len(each.token_ids) for each in texts)
    caller.take_prompt(tokens)
    encodes = _encodes(request, texts, scheduling)
    entry = entry_of(request)
    entry.arrived_at, entry.usage = scheduling.arrived_at - waited_before(request), Usage(prompt=tokens)
    in_force = serving.limits()
    waiting = iter(encodes)
    first = tuple(islice(waiting, max(1, (in_force.concurrency + in_force.limits.max_queue) // 2)))
    stream = Stream(len(first))
    vectors: dict[str, bytes] = {}
    queued = 0.0
    try:
        await _send(serving, first, stream)
        while len(vectors) < len(encodes):
            deltas = await stream.take()
            if stream.rejected is not None:
                raise serving.rejection_error(stream.rejected)
            for delta in deltas:
                if delta.finish != "stop":
                    cause = delta.error or delta.finish
                    log.error("request %s: the engine finished it with an error: %s", delta.request_id, cause)
                    raise InternalError(request_id_of(request))
                vectors[delta.request_id] = delta.vector
                queued = max(queued, delta.queue_seconds)
            await _send(serving, islice(waiting, len(deltas)), stream)
    except (ApiError, EngineFailed) as error:
        if stream.rejected is None:
            for message in encodes:
                serving.metrics.ended(message.request_id, "error")
        if isinstance(error, ApiError):
            raise
        raise InternalError(request_id_of(request)) from error
    finally:
        for message in encodes:
            serving.engine.cancel(message.request_id, "abort")
            if stream.rejected is not None:
                serving.metrics.rejected(message.request_id, stream.rejected.reason)
            serving.metrics.ended(message.request_id, "stop" if message.request_id in vectors else "abort")
        if stream.rejected is not None:  # the call moves to the next replica, which counts all its texts
            caller.charge(-tokens)
            for message in waiting:
                serving.metrics.rejected_unsubmitted(stream.rejected.reason, offered_before=message.offered_before)
    entry.queue_seconds, entry.finish = queued, "stop"
    return BatchResult([vectors[message.request_id] for message in encodes], tokens, queued)


def _encodes(
    request: web.BaseRequest, texts: Sequence[TokenizedText], scheduling: SchedulingFields
) -> list[messages.Encode]:
    """The texts as requests to the engine, in order."""
    name, caller, waited = uuid.uuid4().hex, caller_of(request), waited_before(request)
    return [
        messages.Encode(
            f"{name}-{index}",
            each.token_ids,
            scheduling.arrived_at - waited,
            each.token_types,
            caller.priority(scheduling.priority),
            caller.tenant,
            ttft_target=scheduling.ttft_target,
            offered_before=offered_before(request),
            waited=waited,
            last_attempt=is_last_attempt(request),
        )
        for index, each in enumerate(texts)
    ]


async def _send(serving: Serving, encodes: Iterable[messages.Encode], stream: Stream) -> None:
    batch = tuple(encodes)
    for message in batch:
        serving.metrics.started(
            message.names, message.arrived_at, len(message.token_ids), offered_before=message.offered_before
        )
    serving.engine.submit(*batch, stream=stream)
    await serving.engine.drained()
