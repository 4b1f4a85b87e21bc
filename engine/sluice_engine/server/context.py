"""Shared state for all handlers of the data port and the admin port, and the headers of every response."""

import asyncio
import os
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from sluice import contract
from sluice.auth.caller import rate_headers
from sluice.auth.gateway_token import FROM_GATEWAY
from sluice.httpapi.connection import Connection
from sluice.httpapi.errors import COMMON_HEADERS
from sluice.httpapi.event_response import EventResponse
from sluice.tracing import Tracing
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.grammar.checker import GrammarChecker
from sluice_engine.limits import Limits, LimitsInForce, at_start
from sluice_engine.server.auth.metrics import AccessMetrics
from sluice_engine.server.engine.client import EngineClient
from sluice_engine.server.engine.kv_feed import KvFeed
from sluice_engine.server.errors import BadRequest, Unavailable
from sluice_engine.server.lifecycle import Lifecycle, Phase
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.model_fetch import ModelFetch
from sluice_engine.server.transport.cors import CORS_HEADERS
from sluice_engine.text import TextModel

MAX_WAITED_SECONDS: Final = 3600.0  # that an engine takes from a gateway
HEARTBEAT_SECONDS: Final = 30.0  # if requests run and no step ends for this long, the engine counts as hung
ENDPOINT_OF_TASK: Final = {
    "generate": contract.PATH_CHAT_COMPLETIONS,
    "embed": contract.PATH_EMBEDDINGS,
    "score": contract.PATH_RERANK,
}
REQUEST_ID: Final = web.RequestKey("request_id", str)
_REQUEST_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}", re.ASCII)


_R = TypeVar("_R", bound=web.StreamResponse)


class Busy:
    """Context manager that marks a handler as running; `idle` is set while none is."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self._handlers = 0

    def __enter__(self) -> None:
        """A handler begins."""
        self._handlers += 1
        self.idle.clear()

    def __exit__(self, *_: object) -> None:
        """A handler ends."""
        self._handlers -= 1
        if not self._handlers:
            self.idle.set()


class Serving:
    """One engine being served. `text` and `engine.ready` are set once `lifecycle` is past LOADING."""

    def __init__(
        self, options: EngineOptions, metrics: EngineMetrics, lifecycle: Lifecycle, engine: EngineClient
    ) -> None:
        self.options = options
        self.metrics = metrics
        self.access_metrics = AccessMetrics()
        self.lifecycle = lifecycle
        self.engine = engine
        self.kv_feed = KvFeed(engine.send)
        engine.on_kv_events = self.kv_feed.publish
        self.grammars = GrammarChecker()
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="encode")
        self.loading: messages.Loading | None = None
        self.fetch: ModelFetch | None = None  # set by the server's start
        self.tracing: Tracing | None = None  # set by the server's start; None: no traces
        self.created = int(time.time())
        self.busy = Busy()
        self.idle = self.busy.idle
        self._text: TextModel | None = None

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        return self.options.served_name

    @property
    def text(self) -> TextModel:
        """The tokenizer. Raises Unavailable while loading."""
        if self._text is None:
            raise self.lifecycle.rejection() or RuntimeError("serving without a tokenizer")
        return self._text

    @property
    def ready(self) -> messages.Ready:
        """The engine's Ready message. Raises Unavailable while loading."""
        if self.engine.ready is None:
            raise self.lifecycle.rejection() or RuntimeError("serving without an engine")
        return self.engine.ready

    def text_loaded(self, text: TextModel) -> None:
        """Stores the tokenizer and starts serving if the engine is ready."""
        self._text = text
        self.check_complete()

    def check_complete(self) -> None:
        """Starts serving once both the tokenizer and the engine are ready."""
        if self._text is not None and self.engine.ready is not None:
            self.lifecycle.loaded()

    def check_loaded(self, arriving: web.BaseRequest | None = None) -> None:
        """Raises Unavailable while loading.

        A request `arriving` for the model then counts as arrived and rejected: its validity cannot be checked yet, and
        a fleet whose replicas are all loading is not idle.
        """
        if self.lifecycle.phase is Phase.LOADING and (rejection := self.lifecycle.rejection()) is not None:
            if arriving is not None:
                self.metrics.rejected_unsubmitted("loading", offered_before=offered_before(arriving))
            raise rejection

    def check_task(self, task: str) -> None:
        """Raises BadRequest if the model is served for another task."""
        if self.ready.task != task:
            raise BadRequest(
                f"The model {self.served_name!r} does not {task}; it is served to {self.ready.task}: use "
                f"{ENDPOINT_OF_TASK[self.ready.task]}.",
                param="model",
                code="model_not_supported",
            )

    def check_accepting(self, request: web.BaseRequest) -> None:
        """Raises Unavailable, and counts the rejection, while no request is accepted."""
        if (rejection := self.lifecycle.rejection()) is not None:
            self.metrics.rejected_unsubmitted("draining", offered_before=offered_before(request))
            raise rejection

    def rejection_error(self, message: messages.Rejected) -> Unavailable:
        """Converts the engine's rejection into the error for the client.

        If a replica is starting, Retry-After is the time until it serves, except during a drain: other replicas serve
        then.
        """
        wait = message.retry_after
        if message.reason != "draining":
            wait = self.lifecycle.capacity_eta.retry_after(wait, message.request_id)
        return Unavailable(message.message, code=message.reason, retry_after=wait)

    def limits(self) -> LimitsInForce:
        """Returns the limits in force; the start values until the engine has reported."""
        report = self.engine.last_report
        if report is None:
            return at_start(self.options.limits)
        if report.limits.ttl is None:
            return report.limits
        # An idle engine sends no report while the TTL elapses; both processes use the same monotonic clock.
        return replace(report.limits, ttl=max(report.limits.ttl - (time.monotonic() - report.ended_at), 0.0))

    def set_base_limits(self, limits: Limits) -> None:
        """Replaces the base limits. The engine applies them with its next step."""
        self.options = msgspec.structs.replace(self.options, limits=limits)
        if self.engine.last_report is None:  # without a report of the engine these are the limits in force
            self.metrics.on_limits(at_start(limits))
        self.engine.send(messages.BaseLimits(limits))

    def live(self) -> str | None:
        """Returns None if healthy, else the fault. Saturation is no fault; a step longer than HEARTBEAT_SECONDS is one."""
        if self.lifecycle.phase is Phase.FAILED or (self.engine.pid is not None and not self.engine.alive):
            return "the engine process has ended"
        silent = time.monotonic() - self.engine.last_progress
        if self.engine.in_flight and silent > HEARTBEAT_SECONDS:
            return f"requests run and no step has ended for {silent:.0f} s"
        return None

    def response(
        self, request: web.BaseRequest, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Returns a complete response. It is JSON unless `headers` sets another Content-Type."""
        merged = {"Content-Type": "application/json"} | self._common(request) | dict(headers or {})
        response = web.Response(status=status, body=body, headers=merged)
        if status >= 400 and not request.content.is_eof():  # the rest of the body is not wanted
            response.force_close()
        return self._closing(request, response)

    def stream_response(self, request: web.BaseRequest, headers: Mapping[str, str]) -> EventResponse:
        """Returns a response whose body follows."""
        response = self._closing(request, EventResponse(request, self._common(request) | dict(headers)))
        response.begin()
        return response

    def _common(self, request: web.BaseRequest) -> dict[str, str]:
        cors = request.get(CORS_HEADERS, {})
        return request_id_headers(request) | COMMON_HEADERS | rate_headers(request) | cors

    def _closing(self, request: web.BaseRequest, response: _R) -> _R:
        connection = request.protocol
        if self.lifecycle.closing or (isinstance(connection, Connection) and connection.aged):
            response.force_close()
        return response


def random_id() -> str:
    """Returns 32 random hexadecimal digits, as many as a UUID has."""
    return os.urandom(16).hex()


def request_id_of(request: web.BaseRequest) -> str:
    """Returns the request's id: the client's if it is short and plain, else a generated one."""
    known = request.get(REQUEST_ID)
    if known is None:
        requested = request.headers.get(contract.HEADER_REQUEST_ID, "")
        known = request[REQUEST_ID] = requested if _REQUEST_ID_PATTERN.fullmatch(requested) else random_id()
    return known


def request_id_headers(request: web.BaseRequest) -> dict[str, str]:
    """Returns the headers that carry the request's id."""
    headers = {contract.HEADER_REQUEST_ID: request_id_of(request)}
    if request.rel_url.raw_path in contract.PATHS_ANTHROPIC:
        headers[contract.HEADER_REQUEST_ID_ANTHROPIC] = headers[contract.HEADER_REQUEST_ID]
    return headers


def offered_before(request: web.BaseRequest) -> bool:
    """Whether another replica had the request before, according to the gateway: the fleet counts its arrival once."""
    return request.headers.get(contract.HEADER_ATTEMPT, "1") != "1"


def is_last_attempt(request: web.BaseRequest) -> bool:
    """Whether an official client with the default settings reports an error if the request is rejected once more."""
    text = request.headers.get(contract.HEADER_RETRY_COUNT, "")
    return text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= contract.CLIENT_RETRIES


def waited_before(request: web.BaseRequest) -> float:
    """Seconds that the request has waited in a gateway: they count towards its time to first token."""
    text = request.headers.get(contract.HEADER_WAITED_MS, "") if request.get(FROM_GATEWAY) else ""
    return min(int(text) / 1000.0, MAX_WAITED_SECONDS) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0


def close_after_response(request: web.BaseRequest) -> None:
    """Closes the connection after the current response."""
    request.protocol.close()
