"""One completion from body to last byte: validate, encode, submit, stream or collect, and always clean up.

Whatever way a request leaves (answered, stop string, client gone, our fault), its `finally` cancels what the engine
may still hold of it; cancelling twice does no harm.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from typing import Final

from aiohttp import web

from sluice import contract
from sluice_engine import ipc
from sluice_engine.server import validate
from sluice_engine.server.body import read_object
from sluice_engine.server.errors import (
    ApiError,
    BadRequest,
    ClientTooSlow,
    ContextTooLong,
    InternalError,
    Unavailable,
)
from sluice_engine.server.link import EngineGone, Stream
from sluice_engine.server.serving import Serving, hang_up, request_id_of
from sluice_engine.server.wire import ChatWire, CompletionWire, EventEncoder, Usage, Wire, whole
from sluice_engine.text import StopScanner
from sluice_engine.text.template import TemplateFailed

WRITE_SECONDS: Final = 30.0  # a client that takes nothing for so long is given up
INLINE_CHARACTERS: Final = 2048  # shorter prompts are encoded on the loop: a thread costs more than they do

log = logging.getLogger("sluice.http")


async def chat(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    return await _complete(request, serving, ChatWire(), validate.chat)


async def completions(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/completions."""
    return await _complete(request, serving, CompletionWire(), validate.completion)


async def _complete(
    request: web.BaseRequest,
    serving: Serving,
    wire: Wire,
    check: Callable[[dict[str, object], str], validate.Generation],
) -> web.StreamResponse:
    body = await read_object(request)
    serving.check_loaded()
    arrived_at = time.monotonic()
    generation = check(body, serving.served_name)
    serving.check_accepting()
    tokens = await _encode(serving, generation)
    params = _params(serving, generation, len(tokens))
    answer = _Answer(serving, request, generation, wire, Usage(prompt=len(tokens)))
    serving.metrics.started(answer.id, arrived_at, len(tokens))
    try:
        stream = await serving.link.submit(ipc.Submit(answer.id, tokens, params, arrived_at))
        return await (answer.stream(stream) if generation.stream else answer.collect(stream))
    except EngineGone as error:
        serving.metrics.ended(answer.id, "error")
        raise InternalError(request_id_of(request)) from error
    finally:
        answer.release()


async def _encode(serving: Serving, generation: validate.Generation) -> tuple[int, ...]:
    """The prompt's token ids, checked against the context and the width of the logits."""
    context = serving.ready.max_model_length
    if isinstance(generation.prompt, tuple):
        tokens = generation.prompt
        if max(tokens) >= serving.ready.vocab_size:
            raise BadRequest(
                f"prompt holds a token id that is not below the vocabulary's size, {serving.ready.vocab_size}.",
                param="prompt",
                code="invalid_value",
            )
    else:
        texts = [generation.prompt or ""] if generation.messages is None else [m.content for m in generation.messages]
        fewest = sum(map(serving.text.fewest_tokens, texts))
        if fewest >= context:
            raise _too_long(generation, f"at least {fewest}", context)
        if sum(map(len, texts)) <= INLINE_CHARACTERS:
            tokens = _tokens(serving, generation)
        else:
            tokens = await asyncio.get_running_loop().run_in_executor(serving.threads, _tokens, serving, generation)
    if not tokens:
        raise BadRequest("The prompt has no tokens.", param=generation.prompt_param, code="invalid_value")
    if len(tokens) >= context:
        raise _too_long(generation, str(len(tokens)), context)
    return tokens


def _tokens(serving: Serving, generation: validate.Generation) -> tuple[int, ...]:
    try:
        if generation.messages is not None:
            return tuple(serving.text.encode_chat(generation.messages))
        return tuple(serving.text.encode_prompt(str(generation.prompt)))
    except TemplateFailed as error:
        raise BadRequest(f"{error}.", param=generation.prompt_param, code="invalid_value") from error


def _too_long(generation: validate.Generation, tokens: str, context: int) -> ContextTooLong:
    return ContextTooLong(
        f"This model's context is {context} tokens and the prompt has {tokens}; shorten it to at most {context - 1}.",
        generation.prompt_param,
    )


def _params(serving: Serving, generation: validate.Generation, prompt_tokens: int) -> ipc.SamplingParams:
    context = serving.ready.max_model_length
    rest = context - prompt_tokens
    if generation.max_tokens is not None and generation.max_tokens > rest:
        raise ContextTooLong(
            f"This model's context is {context} tokens; the prompt has {prompt_tokens} and "
            f"{generation.max_tokens_param} asks for {generation.max_tokens} more; ask for at most {rest}.",
            generation.max_tokens_param,
        )
    return ipc.SamplingParams(
        max_tokens=generation.max_tokens or rest,
        temperature=generation.temperature,
        top_k=generation.top_k,
        top_p=generation.top_p,
        seed=generation.seed,
        ignore_eos=generation.ignore_eos,
        stop_token_ids=() if generation.ignore_eos else serving.text.stop_token_ids,
    )


class _Answer:
    """One request's answer in the making. `id` is ours: two clients may send the same x-request-id."""

    def __init__(
        self, serving: Serving, request: web.BaseRequest, generation: validate.Generation, wire: Wire, usage: Usage
    ) -> None:
        self.id = f"{wire.prefix}{uuid.uuid4().hex}"
        self._serving = serving
        self._request = request
        self._generation = generation
        self._wire = wire
        self._usage = usage
        self._created = int(time.time())
        self._decoder = serving.text.detokenizer()
        self._scanner = StopScanner(generation.stop)
        self._finish: str | None = None

    def release(self) -> None:
        """Ends what may be left of the request, in the engine and in the books."""
        self._serving.link.cancel(self.id, "abort")
        self._serving.metrics.ended(self.id, "abort")

    async def collect(self, stream: Stream) -> web.StreamResponse:
        """The whole answer in one response."""
        deltas = await self._first(stream)
        headers = self._headers(deltas[0])
        parts = [self._advance(deltas)]
        while self._finish is None:
            parts.append(self._advance(await self._next(stream)))
        body = whole(
            self._wire, self.id, self._created, self._serving.served_name, "".join(parts), self._finish, self._usage
        )
        return self._serving.response(self._request, 200, body, headers)

    async def stream(self, stream: Stream) -> web.StreamResponse:
        """The answer as events; the headers go out with the first ones."""
        encoder = EventEncoder(
            self._wire, self.id, self._created, self._serving.served_name, self._generation.include_usage
        )
        deltas = await self._first(stream)
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = self._serving.stream_response(self._request, headers | self._headers(deltas[0]))
        await response.prepare(self._request)
        try:
            events = encoder.opening() + self._events(encoder, deltas)
            await self._write(response, events)
            while self._finish is None:
                await self._write(response, self._events(encoder, await self._next(stream)))
        except ApiError as error:
            hang_up(self._request)
            await self._write(response, encoder.error(error.body()))
        return response

    def _events(self, encoder: EventEncoder, deltas: list[ipc.Delta]) -> bytes:
        text = encoder.text(self._advance(deltas))
        return text if self._finish is None else text + encoder.closing(self._finish, self._usage)

    def _advance(self, deltas: list[ipc.Delta]) -> str:
        """Takes deltas in; the text that may be shown. Sets `_finish` when the answer is complete.

        Raises InternalError where the engine gave the request up.
        """
        shown: list[str] = []
        for delta in deltas:
            self._usage.completion += len(delta.token_ids)
            text = self._decoder.feed(delta.token_ids)
            if delta.finish is not None:
                text += self._decoder.flush()
            shown.append(self._scanner.feed(text))
            if self._scanner.stopped:
                self._finish = "stop"
                self._serving.link.cancel(self.id, "stop")
                self._serving.metrics.ended(self.id, "stop")
                break
            if delta.finish is not None:
                shown.append(self._scanner.flush())
                self._end(delta)
        return "".join(shown)

    def _end(self, delta: ipc.Delta) -> None:
        if delta.finish not in ("stop", "length"):
            log.error("request %s: the engine ended it: %s", self.id, delta.error or delta.finish)
            raise InternalError(request_id_of(self._request))
        self._finish = delta.finish

    async def _first(self, stream: Stream) -> list[ipc.Delta]:
        """The first deltas. Raises Unavailable when the engine refuses, InternalError."""
        deltas = await self._next(stream)
        if stream.rejected is not None:
            refused = stream.rejected
            raise Unavailable(refused.message, code=refused.reason, retry_after=refused.retry_after)
        self._usage.cached = deltas[0].cached_tokens
        return deltas

    async def _next(self, stream: Stream) -> list[ipc.Delta]:
        try:
            return await stream.take()
        except ApiError:
            self._serving.metrics.ended(self.id, "error")
            raise
        except EngineGone as error:
            self._serving.metrics.ended(self.id, "error")
            raise InternalError(request_id_of(self._request)) from error

    async def _write(self, response: web.StreamResponse, events: bytes) -> None:
        if not events:
            return
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(events)
        except TimeoutError as error:
            raise ClientTooSlow from error

    def _headers(self, first: ipc.Delta) -> dict[str, str]:
        return {
            contract.HEADER_QUEUE_MS: str(round(first.queue_seconds * 1000)),
            contract.HEADER_CACHED_TOKENS: str(first.cached_tokens),
        }
