"""One request on its way: read whole, sent to the best replica, and to the next one as long as no byte has come back.

The request is read before a replica is chosen, because an engine needs all of it before it can start. Responses are
never buffered beyond their first bytes.
"""

import asyncio
import io
import time
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from sluice import contract
from sluice_gateway.body_budget import MAX_BODY_BYTES, BodyBudget, BodyTooLarge, Reservation, TooManyBytes
from sluice_gateway.conversation import Conversation, read_conversation
from sluice_gateway.errors import error_response
from sluice_gateway.headers import engine_headers, forwarded_headers, request_id_of, tenant_of
from sluice_gateway.holding import HoldQueue
from sluice_gateway.metrics import GatewayMetrics
from sluice_gateway.replicas.fleet import Attempt, Fleet, UnknownModel
from sluice_gateway.replicas.state import REFUSES, UNREACHABLE, ReplicaState
from sluice_gateway.request_log import RequestWay
from sluice_gateway.retry_budget import RetryBudget
from sluice_gateway.routing import Prompt, prefix_hashes
from sluice_gateway.routing.prefix_hashes import STEP_BYTES
from sluice_gateway.streaming import UPSTREAM_ERRORS, Begun, begun, pass_on, read_at_most, read_body

SMALL_BYTES: Final = 1024 * 1024  # of a body that aiohttp writes at once; a larger one is written in parts
REJECTION_BYTES: Final = 64 * 1024  # bytes of a replica's 503 that are kept while another replica is tried


@dataclass(frozen=True, slots=True)
class Rejection:
    """A replica's 503, kept in case that no other replica answers better."""

    headers: CIMultiDict[str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """`body_seconds`: time in which a client must send its request. `session_header` names a client's conversation."""

    body_seconds: float = 30.0
    session_header: str | None = None


@dataclass(frozen=True, slots=True)
class _Offer:
    """A request that is offered to replicas."""

    request: web.Request
    body: bytes
    prompt: Prompt
    way: RequestWay


class Proxy:
    """Sends requests to the replicas of a fleet."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        fleet: Fleet,
        hold_queue: HoldQueue,
        metrics: GatewayMetrics,
        options: ProxyOptions,
    ) -> None:
        self._session = session
        self._fleet = fleet
        self._hold_queue = hold_queue
        self._metrics = metrics
        self._options = options
        self._budget = RetryBudget()
        self._bodies = BodyBudget()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, count it and log its way."""
        way = RequestWay(request_id_of(request.headers), request.rel_url.raw_path, time.monotonic())
        status: int | None = None
        try:
            with self._bodies.reservation() as held:
                response = await self._answer(request, way, held)
            status = response.status
            return response
        except TooManyBytes:
            status = 503
            return error_response(
                503, "the bodies of other requests take all memory: try again soon", "service_unavailable",
                code="overloaded", headers={contract.HEADER_RETRY_AFTER: "1", "Connection": "close"},
            )  # fmt: skip
        except BodyTooLarge:
            status = 413
            return error_response(
                413, f"the body is over {MAX_BODY_BYTES} bytes: send less in one request", "invalid_request_error",
                headers={"Connection": "close"},
            )  # fmt: skip
        finally:
            self._metrics.requests.labels("disconnected" if status is None else f"{max(2, status // 100)}xx").inc()
            if request.method == "POST":
                way.log(status, time.monotonic())

    async def _answer(self, request: web.Request, way: RequestWay, held: Reservation) -> web.StreamResponse:
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise BodyTooLarge
        try:
            body = await read_body(request, self._options.body_seconds, lambda size: self._bodies.take(held, size))
        except TimeoutError:
            return error_response(
                408, f"the body did not arrive within {self._options.body_seconds:g} s", "invalid_request_error",
                headers={"Connection": "close"},
            )  # fmt: skip
        read_at = time.monotonic()
        conversation = (
            read_conversation(request.path, body)
            if request.method == "POST"
            else Conversation(model=request.match_info.get("model"))
        )
        prompt = self._prompt(request, conversation)
        try:
            order = self._fleet.order(prompt, conversation.model)
            # Only inference requests wake a model that is scaled to zero: a poll of /v1/models does not.
            if not order and request.method == "POST":
                await self._hold_queue.wait(self._fleet.ready)
                way.held_seconds = time.monotonic() - read_at
                order = self._fleet.order(prompt, conversation.model)
        except UnknownModel as error:
            return error_response(404, str(error), "invalid_request_error", code="model_not_found", param="model")
        self._metrics.overhead.observe(time.monotonic() - read_at - way.held_seconds)
        self._budget.request()
        return await self._first_answer(_Offer(request, body, prompt, way), order)

    def _prompt(self, request: web.Request, conversation: Conversation) -> Prompt:
        """The prompt for the routing policy. Cached prefixes are shared among the requests of one key and salt."""
        header = self._options.session_header
        named = request.headers.get(header, "") if header is not None else ""
        tenant = f"{tenant_of(request.headers)}/{conversation.salt}"
        rate = self._fleet.tokens_per_byte
        return Prompt(
            tokens=len(conversation.text) * rate,
            steps=prefix_hashes(conversation.text, tenant=tenant, model=conversation.model or ""),
            step_tokens=STEP_BYTES * rate,
            session=f"{tenant}/{named}" if named else "",
        )

    async def _first_answer(self, offer: _Offer, order: list[ReplicaState]) -> web.StreamResponse:
        """Try each replica once, as far as the budget of retries allows; without an answer, the last 503 is returned."""
        rejection: Rejection | None = None
        why, received = "", 0
        for place, state in enumerate(order):
            if place and not self._may_retry(why):
                break
            offer.way.tried.append(state.backend.name)
            offer.way.model = offer.way.model or (state.load.model if state.load is not None else None)
            attempt = self._fleet.begin(state, offer.prompt)
            try:
                answer = await self._send(offer, attempt, received + 1)
                if isinstance(answer, Begun):
                    self._count_choice(offer, attempt, place)
                    return await self._pass_on(offer, attempt, answer)
                self._fleet.rejected(attempt)
                why = answer if isinstance(answer, str) else "rejected"
                rejection = rejection if isinstance(answer, str) else answer
                received += why != "refused"  # a refused connection carried no request: the next one is the first
                offer.way.left(why)
            finally:
                self._fleet.end(attempt)
        if rejection is not None:
            return web.Response(status=503, headers=rejection.headers, body=rejection.body)
        what = "no replica answered" if order else "no replica is ready"
        offer.way.error = "no_replica"
        return error_response(
            503, f"{what}: try again soon", "service_unavailable", code="no_replica",
            headers={contract.HEADER_RETRY_AFTER: str(self._hold_queue.retry_after())},
        )  # fmt: skip

    def _may_retry(self, why: str) -> bool:
        """Whether the request may go to one more replica. One that was refused costs nothing: no replica had it."""
        if why != "refused" and not self._budget.take():
            self._metrics.retries_denied.inc()
            return False
        self._metrics.retries.labels(why).inc()
        return True

    async def _send(self, offer: _Offer, attempt: Attempt, number: int) -> Begun | Rejection | str:
        """The replica's answer at its first bytes, its 503, or why there is neither: "refused" or "lost"."""
        request, backend = offer.request, attempt.state.backend
        try:
            upstream = await self._session.request(
                request.method,
                URL(backend.url + request.rel_url.raw_path_qs, encoded=True),  # as sent: dot segments are not resolved
                headers=engine_headers(request.headers, offer.way.request_id, number),
                data=_payload(offer.body) if request.body_exists else None,
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        except aiohttp.ClientConnectorError:
            self._fleet.out(attempt.state, REFUSES)
            return "refused"
        except aiohttp.ConnectionTimeoutError:
            self._fleet.out(attempt.state, UNREACHABLE)
            return "refused"
        except UPSTREAM_ERRORS:
            return "lost"
        try:
            if upstream.status != 503:
                return await begun(upstream)
            rejection = Rejection(
                forwarded_headers(upstream.headers), await read_at_most(upstream.content, REJECTION_BYTES)
            )
        except UPSTREAM_ERRORS:
            upstream.close()
            return "lost"
        except asyncio.CancelledError:
            upstream.close()
            raise
        upstream.close()
        return rejection

    async def _pass_on(self, offer: _Offer, attempt: Attempt, answer: Begun) -> web.StreamResponse:
        offer.way.first_byte_seconds = time.monotonic() - offer.way.began_at
        self._fleet.first_byte(attempt)
        self._record_cache(offer.way, attempt, answer)
        try:
            response, complete = await pass_on(offer.request, answer)
        finally:
            answer.upstream.close()  # closes the connection unless the response was read to its end
        if not complete:
            self._metrics.broken_streams.inc()
            offer.way.error = "upstream_lost"
        return response

    def _record_cache(self, way: RequestWay, attempt: Attempt, answer: Begun) -> None:
        """What the answer says of the replica's cache corrects what the gateway thinks of it."""
        tokens = answer.number(contract.HEADER_PROMPT_TOKENS)
        if tokens <= 0.0:
            return
        cached = answer.number(contract.HEADER_CACHED_TOKENS)
        self._fleet.answered(attempt, cached, tokens)
        way.prompt_tokens, way.cached_tokens, way.expected_tokens = tokens, cached, min(attempt.expected, tokens)
        self._metrics.prompt_tokens.inc(tokens)
        self._metrics.cached_tokens.inc(cached)
        self._metrics.expected_tokens.inc(way.expected_tokens)

    def _count_choice(self, offer: _Offer, attempt: Attempt, place: int) -> None:
        reason = "prefix" if attempt.expected > 0.0 else "load"
        if place:
            reason = "retry"
        elif offer.prompt.session:
            reason = "session"
        offer.way.chosen_by = reason
        self._metrics.chosen.labels(reason).inc()


def _payload(body: bytes) -> bytes | io.BytesIO:
    return body if len(body) < SMALL_BYTES else io.BytesIO(body)
