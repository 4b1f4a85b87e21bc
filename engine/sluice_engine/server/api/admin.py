"""Routes of the admin port: health, metrics, load, events of the KV cache, limits, drain, state.

Writes require the admin token. Reads are open to every client that the NetworkPolicy admits to the port or, with a file of
the token of reads, require that token or the admin token; the probes of the kubelet are open.
"""

import asyncio
import hashlib
import hmac
import time
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from sluice import contract
from sluice.auth.read_tokens import UNAUTHORIZED, TokenFile, is_read_allowed
from sluice.httpapi.body import read_object
from sluice_engine import messages
from sluice_engine.server.api import limits
from sluice_engine.server.api.kv_events import kv_events
from sluice_engine.server.api.load import load
from sluice_engine.server.context import Serving
from sluice_engine.server.engine.client import EngineFailed
from sluice_engine.server.errors import Unauthorized, Unavailable
from sluice_engine.server.metrics import CONTENT_TYPE
from sluice_engine.server.transport.router import Handler, Routes

REPORT_SECONDS: Final = 1.0  # seconds that a PATCH waits for the limits in force


class AdminToken:
    """Checks the token of writes. The file is read at every write, so a rotated token applies at once."""

    def __init__(self, path: Path | None, *, loopback: bool) -> None:
        self._file = TokenFile(path)
        self._is_given = path is not None
        self._loopback = loopback

    def check(self, request: web.BaseRequest) -> None:
        """Raises Unauthorized. The comparison takes constant time over SHA-256 digests.

        Without a token file, writes are allowed on the loopback interface unless the request has an Origin header.
        """
        if not self._is_given:
            if self._loopback and "Origin" not in request.headers:  # not from a web page in a local browser
                return
            raise Unauthorized("Writes need an admin token; start the server with --admin-token-file.")
        values = request.headers.getall("Authorization", [])
        scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        expected = hashlib.sha256(self.value().encode()).digest()
        actual = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        if not self.value() or not hmac.compare_digest(expected, actual) or scheme.lower() != "bearer":
            raise Unauthorized("Writes need the admin token: Authorization: Bearer <token>.", code="invalid_api_key")

    def value(self) -> str:
        """Returns the token of the file; empty if there is none, and then no token matches."""
        return self._file.value()


async def livez(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /livez: 503 if the engine has exited or hangs, else 200."""
    fault = serving.live()
    if fault is not None:
        return serving.response(request, 503, orjson.dumps({"status": "failed", "reason": fault}))
    return serving.response(request, 200, b'{"status":"ok"}')


async def readyz(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /readyz: 200 if the pod accepts new clients, else 503; with the phase, the load's progress, and why the model
    cannot be fetched.
    """
    lifecycle = serving.lifecycle
    body: dict[str, object] = {"status": lifecycle.phase.value}
    if serving.loading is not None and serving.engine.ready is None:
        body["load"] = {
            "phase": serving.loading.phase,
            "fraction": serving.loading.fraction,
            "text": serving.loading.text or (serving.fetch.text if serving.fetch is not None else ""),
        }
    if serving.fetch is not None and (problem := serving.fetch.problem) is not None:
        body["problem"] = {"reason": problem.reason, "message": problem.message}
    if serving.fetch is not None and serving.fetch.revision is not None:
        body["revision"] = serving.fetch.revision
    ready = lifecycle.ready and serving.live() is None
    return serving.response(request, 200 if ready else 503, orjson.dumps(body))


async def metrics(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /metrics in Prometheus' text format."""
    body = serving.metrics.render() + serving.access_metrics.render()
    return serving.response(request, 200, body, {"Content-Type": CONTENT_TYPE})


async def get_limits(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /limits: the limits in force."""
    return serving.response(
        request, 200, orjson.dumps(limits.as_json(serving.limits(), serving.lifecycle.capacity_eta.seconds_left))
    )


async def patch_limits(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """PATCH /limits; responds with the limits in force once the engine has applied them, or after REPORT_SECONDS."""
    body = await read_object(request)
    patch = limits.parse_patch(
        body, serving.limits().limits, serving.options.max_num_seqs, serving.options.limits.max_batched_tokens
    )
    notice = limits.parse_notice(body)
    if notice is not None:
        serving.lifecycle.capacity_eta.set(*notice)
    if set(body) == limits.NOTICE:  # it changes no limit, so it is valid while the engine loads
        return await get_limits(request, serving)
    serving.check_loaded()
    if patch != messages.LimitsPatch():
        serving.engine.send(patch)
        until = time.monotonic() + REPORT_SECONDS
        while not limits.applied(patch, serving.limits()) and (left := until - time.monotonic()) > 0:
            await serving.engine.next_report(left)
    return await get_limits(request, serving)


async def drain(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /drain: unready at once, rejecting after the grace period; running requests finish and the process stays."""
    serving.lifecycle.drain()
    return serving.response(request, 202, orjson.dumps({"status": serving.lifecycle.phase.value}))


async def state(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /state: the scheduler's snapshot. Raises Unavailable if the engine does not respond."""
    serving.check_loaded()
    try:
        snapshot = await serving.engine.state()
    except (EngineFailed, TimeoutError) as error:
        raise Unavailable("The engine does not respond.", code="engine_silent", retry_after=1.0) from error
    tasks = len(asyncio.all_tasks())
    snapshot["server"] = {"phase": serving.lifecycle.phase.value, "in_flight": serving.engine.in_flight, "tasks": tasks}
    return serving.response(request, 200, orjson.dumps(snapshot, option=orjson.OPT_NON_STR_KEYS))


def routes(token: AdminToken, read_token: TokenFile | None = None) -> Routes:
    """Returns the routes of the admin port. Without a file of the token of reads, reads are open."""

    def guarded(handler: Handler) -> Handler:
        async def checked(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
            token.check(request)
            return await handler(request, serving)

        return checked

    def read(handler: Handler) -> Handler:
        if read_token is None:
            return handler
        file = read_token

        async def checked(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
            if not is_read_allowed(request, (file.value(), token.value())):
                raise Unauthorized(UNAUTHORIZED, code="invalid_api_key")
            return await handler(request, serving)

        return checked

    return {
        contract.PATH_LIVEZ: {"GET": livez},
        contract.PATH_READYZ: {"GET": readyz},
        contract.PATH_METRICS: {"GET": read(metrics)},
        contract.PATH_LOAD: {"GET": read(load)},
        contract.PATH_KV_EVENTS: {"GET": read(kv_events)},
        contract.PATH_LIMITS: {"GET": read(get_limits), "PATCH": guarded(patch_limits)},
        contract.PATH_DRAIN: {"POST": guarded(drain)},
        contract.PATH_STATE: {"GET": read(state)},
    }
