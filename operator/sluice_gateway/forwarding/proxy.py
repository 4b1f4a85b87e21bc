"""One request on its way: read whole, sent to the best replica, and to the next one as long as no byte has come back.

The request is read before a replica is chosen, because an engine needs all of it before it can start. Responses are
never buffered beyond their first bytes.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeVar
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDict

from sluice import contract
from sluice.auth.caller import caller_of
from sluice.httpapi.body import read_body
from sluice.httpapi.connection_limits import WRITE_SECONDS
from sluice.httpapi.errors import NotFound, Unavailable
from sluice_gateway.conversation import Conversation, read_conversation
from sluice_gateway.errors import UpstreamLost
from sluice_gateway.forwarding.accounting import Accounting, result_of
from sluice_gateway.forwarding.dispatch import Claim, Dispatcher
from sluice_gateway.forwarding.offer import Offer
from sluice_gateway.forwarding.patience import patience
from sluice_gateway.forwarding.resume import ResumableStream
from sluice_gateway.forwarding.retry_budget import RetryBudget
from sluice_gateway.headers import engine_headers, forwarded_headers, tenant_of
from sluice_gateway.holding import HoldQueue
from sluice_gateway.keys.charge import PromptCharge
from sluice_gateway.metrics import GatewayMetrics
from sluice_gateway.queueing import QueueLimits
from sluice_gateway.replicas.fleet import Attempt, Fleet, UnknownModel
from sluice_gateway.replicas.state import NO_HTTP, REFUSES, UNREACHABLE
from sluice_gateway.request_log import RequestWay
from sluice_gateway.routing import Prompt, draw_of, prefix_hashes
from sluice_gateway.routing.prefix_hashes import STEP_BYTES
from sluice_gateway.routing.revisions import NEVER
from sluice_gateway.streaming import PASSING, Begun, Passing, PlainStream, break_off, relay, start
from sluice_gateway.upstream.answer import Answer
from sluice_gateway.upstream.errors import ConnectFailed, ConnectTimedOut, NotHttp, UpstreamError
from sluice_gateway.upstream.pool import Connections, Request

REJECTION_BYTES: Final = 64 * 1024  # bytes of a replica's 503 that are kept while another replica is tried
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rejection:
    """A replica's 503, kept in case that no other replica answers better."""

    headers: CIMultiDict[str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """`queue` None: requests do not wait in the gateway.

    `draw()`, 0 to 1, chooses the revision of a request without a session while its model has a canary.
    `needs_unverified_key(model)`: only the model's engines know the key of a request, and so its priority ceiling.
    """

    queue: QueueLimits | None = None
    write_seconds: float = WRITE_SECONDS
    draw: Callable[[], float] = random.random
    needs_unverified_key: Callable[[str | None], bool] = lambda _: False


class Proxy:
    """Sends requests to the replicas of a fleet."""

    def __init__(
        self,
        connections: Connections,
        fleet: Fleet,
        hold_queue_of: Callable[[str | None], HoldQueue],
        metrics: GatewayMetrics,
        options: ProxyOptions,
    ) -> None:
        self._connections = connections
        self._fleet = fleet
        self._hold_queue_of = hold_queue_of
        self._metrics = metrics
        self._options = options
        self._accounting = Accounting(fleet, metrics)
        self._budget = RetryBudget()
        self.dispatcher = Dispatcher(fleet, options.queue)
        metrics.refresh = self._count_waiting

    async def handle(self, request: web.BaseRequest, way: RequestWay) -> web.StreamResponse:
        """Answer one request. Raises ApiError."""
        offer = await self._read(request, way)
        try:
            # Only inference requests wake a model that is scaled to zero: a poll of /v1/models does not.
            if request.method == "POST" and not self._fleet.ready(offer.model):
                held_at = time.monotonic()
                # All held requests are placed at once: before the new replica's limit is known, most would be rejected.
                await offer.hold_queue.wait(lambda: self._fleet.ready(offer.model, is_asked=True))
                way.held_seconds = time.monotonic() - held_at
            return await self._first_answer(offer, await self._place(offer))
        except UnknownModel as error:
            raise NotFound(str(error), code="model_not_found", param="model") from error
        finally:
            offer.charge.end()

    async def _read(self, request: web.BaseRequest, way: RequestWay) -> Offer:
        """Read the request whole. The text of its conversation is not kept: the prompt stands for it."""
        path, posted = request.rel_url.raw_path, request.method == "POST"
        body = await read_body(request) if posted else b""
        read_at = time.monotonic()
        conversation = read_conversation(path, body) if posted else Conversation(model=_named_model(path))
        caller, model = caller_of(request), conversation.model
        for name in self._fleet.models() if model is None else (model,):
            caller.check_model(name)
        prompt = self._prompt(request, conversation)
        self._budget.request()
        charge = PromptCharge(caller, round(prompt.tokens) if posted else 0)
        is_unverified = self._options.needs_unverified_key(model)
        priority = caller.priority(min(conversation.priority, 0) if is_unverified else conversation.priority)
        deadline = inf if conversation.ttft_seconds is None else read_at + conversation.ttft_seconds
        claim = Claim(caller.tenant, caller.key.weight, priority, deadline, len(body), read_at)
        hold_queue, resume = self._hold_queue_of(model), conversation.resume
        return Offer(request, body, model, prompt, claim, charge, way, hold_queue, resume, arrived_at=read_at)

    async def _place(self, offer: Offer, tried: Sequence[str] = ()) -> Attempt | None:
        """The request's next attempt, after its wait in the queue. Raises UnknownModel and Unavailable."""
        begun_at = time.monotonic()
        attempt, waited = await self.dispatcher.place(offer.prompt, offer.model, offer.claim, tried)
        if waited:
            seconds = time.monotonic() - begun_at
            offer.way.queued_seconds += seconds
            if attempt is not None:
                self._metrics.queue_seconds.observe(seconds)
        return attempt

    def _count_waiting(self) -> None:
        self._metrics.waiting(pair for queue in self.dispatcher.queues for pair in queue.by_priority.items())

    def _prompt(self, request: web.BaseRequest, conversation: Conversation) -> Prompt:
        """The prompt for the routing policy. Cached prefixes are shared among the requests of one key and salt."""
        header = self._fleet.routing(conversation.model).session_header
        named = request.headers.get(header, "") if header is not None else ""
        tenant = f"{caller_of(request).tenant or tenant_of(request.headers)}/{conversation.salt}"
        rate = self._fleet.tokens_per_byte
        return Prompt(
            tokens=len(conversation.text) * rate,
            steps=prefix_hashes(conversation.text, tenant=tenant, model=conversation.model or ""),
            step_tokens=STEP_BYTES * rate,
            session=(session := f"{tenant}/{named}" if named else ""),
            draw=self._draw(session) if self._fleet.has_canary() else NEVER,
        )

    def _draw(self, session: str) -> float:
        return draw_of(session) if session else self._options.draw()

    async def _first_answer(self, offer: Offer, attempt: Attempt | None) -> web.StreamResponse:
        """Try each replica once, as far as the budget of retries allows; without an answer, a 503 of a replica is returned.

        Raises Unavailable if there is none either.
        """
        rejection: Rejection | None = None
        tried: list[str] = []
        received = 0
        while attempt is not None:
            tried.append(attempt.state.backend.name)
            offer.way.tries(attempt)
            try:
                answer = await self._send(offer, attempt, received + 1)
                if isinstance(answer, Begun):
                    self._accounting.choice(offer, attempt, len(tried))
                    try:
                        return await self._pass_on(offer, attempt, answer)
                    finally:
                        answer.upstream.close()
                why = answer if isinstance(answer, str) else "rejected"
                if why == "lost":
                    self._accounting.revision(offer, attempt, "error")
                rejection = rejection if isinstance(answer, str) else answer
                received += why != "refused"  # a refused connection carried no request: the next one is the first
                offer.way.left(why)
            finally:
                self._fleet.end(attempt)
            attempt = await self._place(offer, tried) if self._may_retry(why) else None
            if attempt is not None:
                self._metrics.retries.labels(why).inc()
        if rejection is not None:
            return web.Response(status=503, headers=rejection.headers, body=rejection.body)
        what = "No replica answered" if tried else "No replica is ready"
        raise Unavailable(
            f"{what}; send it again soon.", code="no_replica", retry_after=float(offer.hold_queue.retry_after())
        )

    def _may_retry(self, why: str) -> bool:
        """Whether the request may go to one more replica. One that was refused costs nothing: no replica had it."""
        if why != "refused" and not self._budget.take():
            self._metrics.retries_denied.inc()
            return False
        return True

    def _may_go_on(self, offer: Offer) -> bool:
        """Whether another replica would get the request of one that is silent now. It takes nothing from the budget."""
        return self._budget.left and self._fleet.has_other(offer.model, offer.way.names)

    async def _send(self, offer: Offer, attempt: Attempt, number: int) -> Begun | Rejection | str:
        """As `_exchange`. A replica that turns out to be silent loses the request, at once if another one may have it."""
        try:
            return await self._unless_silent(offer, attempt, self._exchange(offer, attempt, number))
        except TimeoutError:
            return "lost"

    async def _unless_silent(self, offer: Offer, attempt: Attempt, answer: Awaitable[T]) -> T:
        """Await a part of the replica's answer. Raises TimeoutError once the replica turns out to be silent."""
        waiting = attempt.state.unanswered
        async with asyncio.timeout(None) as limit:
            waiting[id(attempt)] = patience(limit, lambda: self._may_go_on(offer))
            try:
                return await answer
            finally:
                waiting.pop(id(attempt), None)

    async def _exchange(self, offer: Offer, attempt: Attempt, number: int) -> Begun | Rejection | str:
        """The replica's answer at its first bytes, its 503, or why there is neither: "refused" or "lost"."""
        request, backend, way = offer.request, attempt.state.backend, offer.way
        headers = engine_headers(request, way.request_id, number, way.waited_seconds)
        if attempt.tag:
            headers[contract.HEADER_PROMPT_TAG] = attempt.tag
        if way.span is not None:
            headers.update(way.span.headers())
        method = "GET" if request.method == "HEAD" else request.method
        asked = Request(method, request.rel_url.raw_path_qs, headers.items(), offer.body)
        if len(way.tried) == 1:
            self._metrics.overhead.observe(time.monotonic() - offer.arrived_at - way.waited_seconds)
        try:
            upstream = await self._connections.send(backend.host, backend.port, asked)
        except ConnectFailed:
            self._fleet.out(attempt.state, REFUSES)
            return "refused"
        except ConnectTimedOut:
            self._fleet.out(attempt.state, UNREACHABLE)
            return "refused"
        except NotHttp:
            self._fleet.out(attempt.state, NO_HTTP)
            return "lost"
        except UpstreamError:
            return "lost"
        try:
            if upstream.status != 503:
                return Begun(upstream, await upstream.read())
            rejection = Rejection(forwarded_headers(upstream.headers), await upstream.read_at_most(REJECTION_BYTES))
        except UpstreamError:
            self._out_if_garbage(attempt, upstream)
            upstream.close()
            return "lost"
        except asyncio.CancelledError:
            upstream.close()
            raise
        upstream.close()
        return rejection

    async def _pass_on(self, offer: Offer, attempt: Attempt, answer: Begun) -> web.StreamResponse:
        """Pass the answer on to its end; a stream that may go on elsewhere does, if its replica dies."""
        self._has_begun(offer, attempt, answer)
        offer.way.first_byte_seconds = time.monotonic() - offer.way.began_at
        resumable = offer.resume and answer.upstream.status == 200 and answer.upstream.is_events
        stream = ResumableStream(offer.body) if resumable else PlainStream()
        if not resumable:
            offer.release()
        response = await start(offer.request, answer)
        passing = Passing(offer.request, response, stream, answer.upstream.is_events, self._options.write_seconds)
        offer.request[PASSING] = passing
        complete = await self._relayed(offer, attempt, answer, passing)
        self._accounting.revision(offer, attempt, result_of(offer, attempt, answer, complete))
        self._out_if_garbage(attempt, answer.upstream)
        if not complete:
            self._metrics.broken_streams.inc()
            self._fleet.end(attempt)  # it takes no room there while it waits for another replica
            complete = resumable and await self._goes_on(offer, passing)
        if complete:
            await response.write_eof(stream.end())
            return response
        lost = UpstreamLost()
        offer.way.error = lost.code
        await break_off(passing, lost)
        return response

    def _out_if_garbage(self, attempt: Attempt, upstream: Answer) -> None:
        if upstream.is_garbage:
            self._fleet.out(attempt.state, NO_HTTP)

    def _has_begun(self, offer: Offer, attempt: Attempt, answer: Begun) -> None:
        self._fleet.begun(attempt, answer.upstream.status, is_stream=answer.upstream.is_events)
        self._accounting.cache(offer, attempt, answer)
        offer.charge.output(round(answer.number(contract.HEADER_OUTPUT_TOKENS)))

    def _relayed(self, offer: Offer, attempt: Attempt, answer: Begun, passing: Passing) -> Awaitable[bool]:
        """Pass the replica's bytes on. False if it does not complete the answer."""
        if passing.stream.resumable:
            return self._relayed_unless_silent(offer, attempt, answer, passing)
        return relay(answer, passing, offer.charge.output)

    async def _relayed_unless_silent(self, offer: Offer, attempt: Attempt, answer: Begun, passing: Passing) -> bool:
        """As `_relayed`. False once the replica turns out to be stopped."""
        try:
            ended = await self._unless_silent(offer, attempt, relay(answer, passing, offer.charge.output))
            return ended or passing.stream.complete
        except TimeoutError:
            return False
        finally:
            answer.upstream.close()  # closes the connection unless the response was read to its end

    async def _goes_on(self, offer: Offer, passing: Passing) -> bool:
        """Send the request of a broken stream to other replicas, with the tokens that the client has. False if none ends it."""
        tried = list(offer.way.names)
        while isinstance(passing.stream, ResumableStream) and passing.stream.resumable and self._may_retry("lost"):
            try:
                attempt = await self._place(offer, tried)
            except (Unavailable, UnknownModel):
                attempt = None
            if attempt is None:
                return False
            offer.way.left("broken")
            tried.append(attempt.state.backend.name)
            offer.way.tries(attempt)
            self._metrics.resumed.inc()
            try:
                answer = await self._send(replace(offer, body=passing.stream.next_body()), attempt, len(tried))
                if isinstance(answer, Begun):
                    self._fleet.first_byte(attempt)
                    if not (answer.upstream.status == 200 and answer.upstream.is_events):
                        answer.upstream.close()
                    elif await self._relayed(offer, attempt, answer, passing):
                        return True
                    else:
                        self._metrics.broken_streams.inc()
            finally:
                self._fleet.end(attempt)
        return False


def _named_model(path: str) -> str | None:
    """The model of `/v1/models/{name}`."""
    prefix = f"{contract.PATH_MODELS}/"
    return unquote(path.removeprefix(prefix)) if path.startswith(prefix) else None
