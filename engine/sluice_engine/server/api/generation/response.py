"""Builds the response of one request from its samples, streamed or collected, and always cleans up.

A prompt with n samples is one message to the engine with n ids, and is computed once. A request may have several
prompts; their samples are numbered in order. However the request ends (finished, client disconnect, engine error), all
samples are cancelled. Cancellation is idempotent.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from aiohttp import web

from sluice import contract
from sluice.auth.caller import caller_of
from sluice.httpapi.connection_limits import WRITE_SECONDS
from sluice.httpapi.streamed_response import takes
from sluice_engine import messages
from sluice_engine.server.api.generation.answer import Answer, AnswerForm
from sluice_engine.server.api.generation.prompt import Encoded
from sluice_engine.server.api.generation.prompt_echo import INLINE_VALUES, PromptEcho, prompt_logprobs
from sluice_engine.server.api.generation.request_schema import Generation
from sluice_engine.server.api.generation.resumption import Resumption, comment
from sluice_engine.server.api.generation.sse import Encoder, Head, ResponseFormat
from sluice_engine.server.context import Serving, close_after_response, random_id, request_id_of
from sluice_engine.server.engine.client import EngineFailed, Stream
from sluice_engine.server.errors import ApiError, ClientTooSlow, InternalError
from sluice_engine.server.metrics import Outcome
from sluice_engine.server.request_log import entry_of
from sluice_engine.server.usage import Usage
from sluice_engine.text import Choice, Piece

# Dialects whose marks of calls are special tokens, which have no text otherwise.
MARKED_BY_TOKENS: Final = ("llama", "mistral", "mistral_args")
STREAM_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}

log = logging.getLogger("sluice.http")


class SampleNames:
    """The names of a request's samples in the engine: `ids`, and in `groups` those of each prompt. The server generates
    them, because two clients may send the same x-request-id.
    """

    def __init__(self, prefix: str, prompts: int, samples: int) -> None:
        self.request = f"{prefix}{random_id()}"
        self.ids = [f"{self.request}-{index}" if index else self.request for index in range(samples * prompts)]
        self.groups = [self.ids[first : first + samples] for first in range(0, len(self.ids), samples)]


class ResponseBuilder:
    """The response of one request."""

    def __init__(
        self,
        serving: Serving,
        request: web.BaseRequest,
        generation: Generation,
        response_format: ResponseFormat,
        usage: Usage,
        form: AnswerForm,
        prompts: Sequence[Encoded],
        names: SampleNames,
        prompt_values: int,
    ) -> None:
        """`prompt_values` is the number of logprobs of prompts in the response."""
        self._serving = serving
        self._request = request
        self._generation = generation
        self._format = response_format
        self._usage = usage
        self._caller = caller_of(request)
        begun = generation.resumption or Resumption()
        self._head = Head(begun.stream_id or names.request, begun.created or int(time.time()), serving.served_name)
        self._reads_marks = form.dialect in MARKED_BY_TOKENS
        self.ids, self.groups = names.ids, names.groups
        self._prompt_values = prompt_values
        self._echoes = [PromptEcho(each, serving.text, generation.echoed_top) for each in prompts]
        scored = generation.choices.prompt_logprobs is not None
        self._scored_prompts = [each.tokens for each in prompts] if scored else []
        self._choices = {each: self._choice(index, each) for index, each in enumerate(self.ids)}
        usage.reasoning = 0 if form.reasons else None
        self._answers = {} if form.plain else {each: Answer(form) for each in self.ids}
        self._open = len(self.ids)  # samples that have not finished

    def release(self) -> None:
        """Cancels what remains of the request in the engine and ends its records in the metrics. Idempotent."""
        for choice in self._choices.values():
            self._serving.engine.cancel(choice.id, "abort")
            self._serving.metrics.ended(choice.id, _outcome(choice))
        entry_of(self._request).finish = ", ".join(sorted({_outcome(each) for each in self._choices.values()}))

    async def collect(self, stream: Stream) -> web.StreamResponse:
        """Returns the complete response at once. Raises Unavailable, InternalError, ClientTooSlow."""
        deltas = await self._first(stream)
        headers = self._headers(deltas[0].queue_seconds)
        pieces = {choice.id: piece for choice, piece in self._opened()}
        while True:
            for choice, piece in self._advance(deltas):
                self._read(choice, piece)
                pieces[choice.id].text += piece.text
                pieces[choice.id].logprobs += piece.logprobs
            if not self._open:
                break
            deltas = await self._next(stream)
        if self._prompt_values > INLINE_VALUES:
            body = await asyncio.get_running_loop().run_in_executor(self._serving.threads, self._body, pieces)
        else:
            body = self._body(pieces)
        headers[contract.HEADER_OUTPUT_TOKENS] = str(self._usage.completion)
        return self._serving.response(self._request, 200, body, headers)

    async def stream(self, stream: Stream) -> web.StreamResponse:
        """Returns the response as events; the headers are sent with the first events.

        Raises Unavailable and InternalError before the headers are sent, and ClientTooSlow.
        """
        generation = self._generation
        encoder = self._format.encoder(
            self._head,
            len(self.ids),
            self._usage,
            include_usage=generation.include_usage,
            continuous=generation.continuous_usage,
        )
        response = self._serving.stream_response(self._request, STREAM_HEADERS)
        opening = self._opening(encoder)
        deltas = await self._first(stream)  # the engine works while the response is made
        response.add_headers(self._headers(deltas[0].queue_seconds))
        events = opening + self._events(encoder, deltas)
        try:
            await self._write(response, events, stream)
            while self._open:
                await self._write(response, self._events(encoder, await self._next(stream)), stream)
        except ApiError as error:
            entry_of(self._request).error = error.code
            close_after_response(self._request)
            await self._write_last(response, encoder.error(error.body()))
        return response

    def _opening(self, encoder: Encoder) -> bytes:
        """The first events; nothing of a stream that goes on, whose client has them and those of its tokens."""
        opened = [encoder.text(piece.text, choice.index, self._logprobs(piece)) for choice, piece in self._opened()]
        events = b"".join([encoder.opening(), *opened])
        tokens = () if self._generation.resumption is None else self._generation.resumption.tokens
        if not tokens:
            return events
        self._events(encoder, [messages.Delta(self.ids[0], tokens)])
        self._caller.charge(-len(tokens))
        return b""

    def _opened(self) -> list[tuple[Choice, Piece]]:
        """What each sample begins with: the prompt, as far as it is shown."""
        found: list[tuple[Choice, Piece]] = []
        for ids, echo in zip(self.groups, self._echoes, strict=True):
            piece = echo.opening()
            found += [(self._choices[each], Piece(piece.text, list(piece.logprobs))) for each in ids]
        return found

    def _body(self, pieces: Mapping[str, Piece]) -> bytes:
        choices = [self._complete_choice(index, choice, pieces[choice.id]) for index, choice in enumerate(self._best())]
        return self._format.complete(self._head, choices, self._usage)

    def _complete_choice(self, index: int, choice: Choice, piece: Piece) -> dict[str, object]:
        finish, logprobs = choice.finish or "stop", self._logprobs(piece, complete=True)
        if (answer := self._answers.get(choice.id)) is None:
            whole = self._format.complete_choice(index, piece.text, finish, logprobs, choice.stop_string)
            return whole | self._prompt_logprobs(choice)
        whole = self._format.complete_choice(index, "", answer.finish(finish), logprobs, choice.stop_string)
        return whole | {"message": answer.message()}

    def _prompt_logprobs(self, choice: Choice) -> dict[str, object]:
        top = self._generation.choices.prompt_logprobs
        if top is None:
            return {}
        group = choice.index // self._generation.choices.params.n
        scores, tokens = self._echoes[group].scores, self._scored_prompts[group]
        return {"prompt_logprobs": prompt_logprobs(scores, tokens, top, self._serving.text)}

    def _choice(self, index: int, name: str) -> Choice:
        generation, choices = self._generation, self._generation.choices
        return Choice(
            index,
            name,
            self._serving.text,
            choices.params.stops,
            choices.min_tokens,
            choices.returns_logprobs,
            replace(generation.display, special_tokens=True) if self._reads_marks else generation.display,
        )

    def _best(self) -> list[Choice]:
        """Returns the `n` samples of each prompt to return, in order."""
        chosen: list[Choice] = []
        for ids in self.groups:
            choices = [self._choices[each] for each in ids]
            if self._generation.choices.ranked:
                choices.sort(key=lambda choice: -choice.mean_logprob)
            chosen += choices[: self._generation.choices.n]
        return chosen

    def _events(self, encoder: Encoder, deltas: list[messages.Delta]) -> bytes:
        events: list[bytes] = []
        for choice, piece in self._advance(deltas):
            finish, logprobs = choice.finish, self._logprobs(piece)
            if (answer := self._answers.get(choice.id)) is None:
                events.append(encoder.text(piece.text, choice.index, logprobs))
            else:
                events.append(encoder.deltas(self._read(choice, piece), choice.index, logprobs))
                finish = None if finish is None else answer.finish(finish)
            if finish is not None:
                events.append(encoder.finish(finish, choice.index, choice.stop_string))
        if not self._open:
            events.append(encoder.closing(self._usage))
        if self._generation.resumption is not None:
            events.append(comment(deltas))
        return b"".join(events)

    def _read(self, choice: Choice, piece: Piece) -> list[dict[str, object]]:
        """What a piece adds to a chat's answer, as the deltas of a stream."""
        if (answer := self._answers.get(choice.id)) is None:
            return []
        deltas = answer.take(piece.text, choice.tokens, last=choice.finish is not None)
        if self._usage.reasoning is not None:
            self._usage.reasoning = sum(each.reasoning_tokens for each in self._answers.values())
        return deltas

    def _logprobs(self, piece: Piece, *, complete: bool = False) -> dict[str, object] | None:
        """Returns a choice's logprobs if the request asked for them. In a stream, returns None for a piece without
        logprobs.
        """
        if not self._generation.choices.returns_logprobs or not (piece.logprobs or complete):
            return None
        return self._format.logprobs(piece.logprobs, self._serving.text)

    def _advance(self, deltas: list[messages.Delta]) -> list[tuple[Choice, Piece]]:
        """Applies deltas. Returns one piece for each sample that advanced, with the text and logprobs to show.

        Raises InternalError if the engine aborted a sample or failed on it.
        """
        moved: dict[str, tuple[Choice, Piece]] = {}
        for delta in deltas:
            choice = self._choices[delta.request_id]
            if choice.finish is not None:
                continue
            if delta.prompt_logprobs:
                self._prompt_scored(choice, delta, moved)
            before = choice.tokens
            new = self._shown(choice, delta)
            self._usage.completion += choice.tokens - before
            self._caller.charge(choice.tokens - before)
            _add(moved, choice, new)
            if choice.finish is None:
                continue
            self._open -= 1
            if choice.stopped_by_text:
                self._serving.engine.cancel(choice.id, "stop")
                self._serving.metrics.ended(choice.id, "stop")
            elif choice.finish not in ("stop", "length"):
                log.error(
                    "request %s: the engine finished it with an error: %s", choice.id, delta.error or delta.finish
                )
                raise InternalError(request_id_of(self._request))
        return list(moved.values())

    def _shown(self, choice: Choice, delta: messages.Delta) -> Piece:
        """What a delta adds to a sample's output."""
        if self._generation.only_prompt:
            return choice.take(msgspec.structs.replace(delta, token_ids=(), logprobs=()))
        piece = choice.take(delta)
        if piece.logprobs and self._generation.echo:  # the offsets of an output behind its prompt
            before = len(self._echoes[choice.index // self._generation.choices.params.n].text)
            piece.logprobs = [
                replace(each, start=each.start + before, end=each.end + before) for each in piece.logprobs
            ]
        return piece

    def _prompt_scored(self, choice: Choice, delta: messages.Delta, moved: dict[str, tuple[Choice, Piece]]) -> None:
        """Shows the next part of a prompt in each of its samples."""
        group = choice.index // self._generation.choices.params.n
        piece = self._echoes[group].take(delta.prompt_logprobs)
        for each in self.groups[group]:
            _add(moved, self._choices[each], Piece(piece.text, list(piece.logprobs)))

    async def _first(self, stream: Stream) -> list[messages.Delta]:
        """Waits for the first deltas. Raises Unavailable if the engine rejects the request, and InternalError."""
        deltas = await self._next(stream)
        # The first sample computes the prompt. The others hit the cache, which is no property of the request.
        leader = next((delta for delta in deltas if delta.request_id == self.ids[0]), deltas[0])
        self._usage.cached = leader.cached_tokens
        entry = entry_of(self._request)
        entry.queue_seconds, entry.first_at = leader.queue_seconds, time.monotonic()
        return deltas

    async def _next(self, stream: Stream) -> list[messages.Delta]:
        try:
            deltas = await stream.take()
        except (ApiError, EngineFailed) as error:
            raise self._failure(error) from error.__cause__
        if (rejected := stream.rejected) is not None:
            self._caller.charge(-self._usage.prompt)
            for ids in self.groups:  # the whole request moves to the next replica
                self._serving.metrics.rejected(ids[0], rejected.reason)
            raise self._serving.rejection_error(rejected)
        return deltas

    def _failure(self, error: Exception) -> Exception:
        """Returns the exception for the handler. The request counts as an error unless the client was too slow."""
        if isinstance(error, ClientTooSlow):
            return error
        for each in self.ids:
            self._serving.metrics.ended(each, "error")
        return error if isinstance(error, ApiError) else InternalError(request_id_of(self._request))

    async def _write(self, response: web.StreamResponse, events: bytes, stream: Stream) -> None:
        """Waits for a slow client until the request fails; such a failure is not attributed to the client.

        The last events take the end of the body with them. Raises ApiError if the request fails, ClientTooSlow.
        """
        if not events:
            return
        write = response.write if self._open else response.write_eof
        if takes(self._request, len(events)):
            await write(events)
            return
        try:
            async with asyncio.timeout(WRITE_SECONDS) as writing:
                with stream.interrupts(writing):
                    await write(events)
        except TimeoutError as error:
            raise (ClientTooSlow() if stream.error is None else self._failure(stream.error)) from error

    async def _write_last(self, response: web.StreamResponse, events: bytes) -> None:
        """Writes the final events. The handler stays busy until the client has read them, so a drain waits for it."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(events)
                await response.write_eof()
        except TimeoutError as error:
            raise ClientTooSlow from error

    def _headers(self, queue_seconds: float) -> dict[str, str]:
        return {
            contract.HEADER_QUEUE_MS: str(round(queue_seconds * 1000)),
            contract.HEADER_CACHED_TOKENS: str(self._usage.cached),
            contract.HEADER_PROMPT_TOKENS: str(self._usage.prompt),
        }


def _add(moved: dict[str, tuple[Choice, Piece]], choice: Choice, new: Piece) -> None:
    if choice.id in moved:
        piece = moved[choice.id][1]
        piece.text += new.text
        piece.logprobs += new.logprobs
    else:
        moved[choice.id] = (choice, new)


def _outcome(choice: Choice) -> Outcome:
    """Returns the outcome of a sample that is not counted yet: an abort by the client unless the sample is complete."""
    if choice.finish == "stop":
        return "stop"
    return "length" if choice.finish == "length" else "abort"
