"""The response to one request in the making: its answers side by side, streamed or collected, always cleaned up.

A request with n answers is one message to the engine and n names in it, and computes its prompt once; whatever way it
leaves (answered, client gone, our fault), all of them are cancelled, and cancelling twice does no harm.
"""

import asyncio
import logging
import time
import uuid
from typing import Final

from aiohttp import web

from sluice import contract
from sluice_engine import ipc
from sluice_engine.server.errors import ApiError, ClientTooSlow, InternalError
from sluice_engine.server.link import EngineGone, Stream
from sluice_engine.server.serving import Serving, hang_up, request_id_of
from sluice_engine.server.validate import Generation
from sluice_engine.server.wire import EventEncoder, Usage, Wire, whole
from sluice_engine.text import Choice, Piece

WRITE_SECONDS: Final = 30.0  # a client that takes nothing for so long is given up

log = logging.getLogger("sluice.http")


class Answer:
    """`ids` name its answers in the engine: ours, because two clients may send the same x-request-id."""

    def __init__(
        self, serving: Serving, request: web.BaseRequest, generation: Generation, wire: Wire, usage: Usage
    ) -> None:
        self._serving = serving
        self._request = request
        self._generation = generation
        self._wire = wire
        self._usage = usage
        self._id = f"{wire.prefix}{uuid.uuid4().hex}"
        self._created = int(time.time())
        choices = generation.choices
        self.ids = [f"{self._id}-{index}" if index else self._id for index in range(choices.best_of)]
        scored = choices.logprobs is not None
        self._choices = {
            each: Choice(index, each, serving.text, generation.stop, choices.min_tokens, scored)
            for index, each in enumerate(self.ids)
        }
        self._open = len(self.ids)  # answers that are not complete

    def release(self) -> None:
        """Ends what may be left of the request, in the engine and in the books."""
        for each in self.ids:
            self._serving.link.cancel(each, "abort")
            self._serving.metrics.ended(each, "abort")

    async def collect(self, stream: Stream) -> web.StreamResponse:
        """The whole response at once."""
        deltas = await self._first(stream)
        headers = self._headers(deltas[0].queue_seconds)
        whole_of = {each: Piece() for each in self.ids}
        while True:
            for choice, piece in self._advance(deltas):
                whole_of[choice.id].text += piece.text
                whole_of[choice.id].logprobs += piece.logprobs
            if not self._open:
                break
            deltas = await self._next(stream)
        given = [
            self._wire.whole_choice(
                index,
                whole_of[choice.id].text,
                choice.finish or "stop",
                self._logprobs(whole_of[choice.id], whole=True),
            )
            for index, choice in enumerate(self._best())
        ]
        body = whole(self._wire, self._id, self._created, self._serving.served_name, given, self._usage)
        return self._serving.response(self._request, 200, body, headers)

    async def stream(self, stream: Stream) -> web.StreamResponse:
        """The response as events; the headers go out with the first ones."""
        encoder = EventEncoder(
            self._wire,
            self._id,
            self._created,
            self._serving.served_name,
            self._generation.include_usage,
            len(self.ids),
        )
        deltas = await self._first(stream)
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = self._serving.stream_response(self._request, headers | self._headers(deltas[0].queue_seconds))
        await response.prepare(self._request)
        try:
            events = encoder.opening() + self._events(encoder, deltas)
            await self._write(response, events)
            while self._open:
                await self._write(response, self._events(encoder, await self._next(stream)))
        except ApiError as error:
            hang_up(self._request)
            await self._write(response, encoder.error(error.body()))
        return response

    def _best(self) -> list[Choice]:
        """The answers to give, in order."""
        choices = list(self._choices.values())
        if self._generation.choices.ranked:
            choices.sort(key=lambda choice: -choice.mean_logprob)
        return choices[: self._generation.choices.n]

    def _events(self, encoder: EventEncoder, deltas: list[ipc.Delta]) -> bytes:
        events: list[bytes] = []
        for choice, piece in self._advance(deltas):
            events.append(encoder.text(piece.text, choice.index, self._logprobs(piece, whole=False)))
            if choice.finish is not None:
                events.append(encoder.finish(choice.finish, choice.index))
        if not self._open:
            events.append(encoder.closing(self._usage))
        return b"".join(events)

    def _logprobs(self, piece: Piece, *, whole: bool) -> dict[str, object] | None:
        """A choice's logprobs where they were asked for and, in a stream, where there are any."""
        if self._generation.choices.logprobs is None or not (piece.logprobs or whole):
            return None
        return self._wire.logprobs(piece.logprobs, self._serving.text)

    def _advance(self, deltas: list[ipc.Delta]) -> list[tuple[Choice, Piece]]:
        """Takes deltas in; what may be shown of each answer that moved, one piece each.

        Raises InternalError where the engine gave an answer up.
        """
        moved: dict[str, tuple[Choice, Piece]] = {}
        for delta in deltas:
            choice = self._choices[delta.request_id]
            if choice.finish is not None:
                continue
            before = choice.tokens
            shown = choice.take(delta)
            self._usage.completion += choice.tokens - before
            if choice.id in moved:
                piece = moved[choice.id][1]
                piece.text += shown.text
                piece.logprobs += shown.logprobs
            else:
                moved[choice.id] = (choice, shown)
            if choice.finish is None:
                continue
            self._open -= 1
            if choice.stopped_by_text:
                self._serving.link.cancel(choice.id, "stop")
                self._serving.metrics.ended(choice.id, "stop")
            elif choice.finish not in ("stop", "length"):
                log.error("request %s: the engine ended it: %s", choice.id, delta.error or delta.finish)
                raise InternalError(request_id_of(self._request))
        return list(moved.values())

    async def _first(self, stream: Stream) -> list[ipc.Delta]:
        """The first deltas. Raises Unavailable when the engine refuses, InternalError."""
        deltas = await self._next(stream)
        # The first answer computes the prompt; the others find it in the cache, which says nothing about the request.
        leader = next((delta for delta in deltas if delta.request_id == self.ids[0]), deltas[0])
        self._usage.cached = leader.cached_tokens
        return deltas

    async def _next(self, stream: Stream) -> list[ipc.Delta]:
        try:
            deltas = await stream.take()
        except ApiError:
            self._failed()
            raise
        except EngineGone as error:
            self._failed()
            raise InternalError(request_id_of(self._request)) from error
        if (refused := stream.rejected) is not None:
            raise self._serving.refused(refused)
        return deltas

    def _failed(self) -> None:
        for each in self.ids:
            self._serving.metrics.ended(each, "error")

    async def _write(self, response: web.StreamResponse, events: bytes) -> None:
        if not events:
            return
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(events)
        except TimeoutError as error:
            raise ClientTooSlow from error

    def _headers(self, queue_seconds: float) -> dict[str, str]:
        return {
            contract.HEADER_QUEUE_MS: str(round(queue_seconds * 1000)),
            contract.HEADER_CACHED_TOKENS: str(self._usage.cached),
        }
