"""What every handler of the data and the admin port needs, in one value, and the headers every response carries."""

import asyncio
import contextlib
import hashlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from sluice import contract
from sluice_engine import ipc
from sluice_engine.metrics import EngineMetrics, starting_limits
from sluice_engine.options import EngineOptions
from sluice_engine.server.errors import BadRequest, Unavailable
from sluice_engine.server.lifecycle import Lifecycle, Phase
from sluice_engine.server.link import EngineLink
from sluice_engine.server.protocol import Connection
from sluice_engine.text import TextModel

HEARTBEAT_SECONDS: Final = 30.0  # requests run and no step ended for so long: the engine hangs
SAME_ON_ALL: Final = {"X-Content-Type-Options": "nosniff", "Server": "sluice"}
INSTEAD: Final = {
    "generate": contract.PATH_CHAT_COMPLETIONS,
    "embed": contract.PATH_EMBEDDINGS,
    "score": contract.PATH_RERANK,
}
REQUEST_ID: Final = web.RequestKey("request_id", str)
_REQUEST_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}", re.ASCII)


_R = TypeVar("_R", bound=web.StreamResponse)


class Serving:
    """One engine being served. `text` and `link.ready` are there once `lifecycle` has left LOADING."""

    def __init__(self, options: EngineOptions, metrics: EngineMetrics, lifecycle: Lifecycle, link: EngineLink) -> None:
        self.options = options
        self.metrics = metrics
        self.lifecycle = lifecycle
        self.link = link
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="encode")
        self.loading: ipc.Loading | None = None
        self.created = int(time.time())
        self.idle = asyncio.Event()  # set while no handler is at work
        self.idle.set()
        self._busy = 0
        self._text: TextModel | None = None

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        return self.options.served_name

    @property
    def text(self) -> TextModel:
        """The tokenizer. Raises Unavailable while loading."""
        if self._text is None:
            raise self.lifecycle.refusal() or RuntimeError("serving without a tokenizer")
        return self._text

    @property
    def ready(self) -> ipc.Ready:
        """What the engine said of itself. Raises Unavailable while loading."""
        if self.link.ready is None:
            raise self.lifecycle.refusal() or RuntimeError("serving without an engine")
        return self.link.ready

    def text_loaded(self, text: TextModel) -> None:
        """The tokenizer is there."""
        self._text = text
        self.check_complete()

    def check_complete(self) -> None:
        """Serves as soon as both halves are loaded."""
        if self._text is not None and self.link.ready is not None:
            self.lifecycle.loaded()

    def check_loaded(self, arriving: web.BaseRequest | None = None) -> None:
        """Raises Unavailable while loading. A request for the model that is `arriving` then counts as arrived and
        refused: nobody can say yet whether it is valid, and a fleet that only loads is not idle."""
        if self.lifecycle.phase is Phase.LOADING and (refusal := self.lifecycle.refusal()) is not None:
            if arriving is not None:
                self.metrics.refused("loading", offered_before=offered_before(arriving))
            raise refusal

    def check_task(self, task: str) -> None:
        """Raises BadRequest where the model is served for something else."""
        if self.ready.task != task:
            raise BadRequest(
                f"The model {self.served_name!r} does not {task}; it is served to {self.ready.task}: use "
                f"{INSTEAD[self.ready.task]}.",
                param="model",
                code="model_not_supported",
            )

    def check_accepting(self, request: web.BaseRequest) -> None:
        """Raises Unavailable, and counts it, while nothing is accepted."""
        if (refusal := self.lifecycle.refusal()) is not None:
            self.metrics.refused("draining", offered_before=offered_before(request))
            raise refusal

    def refused(self, message: ipc.Rejected) -> Unavailable:
        """The engine's refusal as the client reads it: with the wait for a replica that is on its way, unless this one
        leaves and the others are there."""
        wait = message.retry_after
        if message.reason != "draining":
            wait = self.lifecycle.coming.wait(wait, message.request_id)
        return Unavailable(message.message, code=message.reason, retry_after=wait)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While a handler is at work."""
        self._busy += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self.idle.set()

    def limits(self) -> ipc.Limits:
        """Limits in force; those it was started with until the engine has said any."""
        report = self.link.last_report
        if report is None:
            return starting_limits(self.options)
        if report.limits.ttl is None:
            return report.limits
        # An idle engine reports nothing while the time runs on; its clock is ours.
        return msgspec.structs.replace(
            report.limits, ttl=max(report.limits.ttl - (time.monotonic() - report.ended_at), 0.0)
        )

    def live(self) -> str | None:
        """None while healthy, else what is wrong. Saturation is no fault; a hanging step is."""
        if self.lifecycle.phase is Phase.FAILED or (self.link.pid is not None and not self.link.alive):
            return "the engine process has ended"
        silent = time.monotonic() - self.link.last_progress
        if self.link.in_flight and silent > HEARTBEAT_SECONDS:
            return f"requests run and no step has ended for {silent:.0f} s"
        return None

    def response(
        self, request: web.BaseRequest, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """A complete JSON response (or what `headers` says it is)."""
        merged = {"Content-Type": "application/json"} | self._common(request) | dict(headers or {})
        response = web.Response(status=status, body=body, headers=merged)
        return self._closing(request, response)

    def stream_response(self, request: web.BaseRequest, headers: Mapping[str, str]) -> web.StreamResponse:
        """A response whose body follows."""
        response = web.StreamResponse(headers=self._common(request) | dict(headers))
        return self._closing(request, response)

    def _common(self, request: web.BaseRequest) -> dict[str, str]:
        return {contract.HEADER_REQUEST_ID: request_id_of(request), **SAME_ON_ALL}

    def _closing(self, request: web.BaseRequest, response: _R) -> _R:
        connection = request.protocol
        if self.lifecycle.closing or (isinstance(connection, Connection) and connection.aged):
            response.force_close()
        return response


def request_id_of(request: web.BaseRequest) -> str:
    """The request's id: the client's own where it is short and plain, else one of ours."""
    known = request.get(REQUEST_ID)
    if known is None:
        given = request.headers.get(contract.HEADER_REQUEST_ID, "")
        known = request[REQUEST_ID] = given if _REQUEST_ID_PATTERN.fullmatch(given) else uuid.uuid4().hex
    return known


def offered_before(request: web.BaseRequest) -> bool:
    """Whether the front door says that another replica has had the request: the fleet counts its arrival once."""
    return request.headers.get(contract.HEADER_ATTEMPT, "1") != "1"


def tenant_of(request: web.BaseRequest) -> str:
    """Whose share the request counts against: a digest of the API key, so that the key itself goes no further; ""
    without one."""
    keys = "\n".join(request.headers.getall("Authorization", []))
    return hashlib.sha256(keys.encode("utf-8", "surrogateescape")).hexdigest() if keys else ""


def hang_up(request: web.BaseRequest) -> None:
    """Closes the connection after the response at hand."""
    request.protocol.close()
