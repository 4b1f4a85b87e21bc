"""The admin port: health, metrics, limits, drain, state. Reading is open to whoever may reach the port (the
NetworkPolicy says who); writing takes the admin token."""

import hashlib
import hmac
import time
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from sluice import contract
from sluice_engine import ipc
from sluice_engine.metrics import CONTENT_TYPE
from sluice_engine.server import limits
from sluice_engine.server.body import read_object
from sluice_engine.server.errors import Unauthorized, Unavailable
from sluice_engine.server.link import EngineGone
from sluice_engine.server.routes import Handler, Routes
from sluice_engine.server.serving import Serving

REPORT_SECONDS: Final = 1.0  # how long a PATCH waits to answer with what is in force


class AdminToken:
    """Who may write. The file is read at every write, so a rotated token is live at once."""

    def __init__(self, path: Path | None, *, loopback: bool) -> None:
        self._path = path
        self._loopback = loopback

    def check(self, request: web.BaseRequest) -> None:
        """Raises Unauthorized. Constant time over SHA-256."""
        if self._path is None:
            if self._loopback and "Origin" not in request.headers:  # no web page of this machine's browser
                return
            raise Unauthorized("Writes need an admin token; start the server with --admin-token-file.")
        given = request.headers.getall("Authorization", [])
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        expected = self._digest()
        actual = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        if expected is None or not hmac.compare_digest(expected, actual) or scheme.lower() != "bearer":
            raise Unauthorized("Writes need the admin token: Authorization: Bearer <token>.", code="invalid_api_key")

    def _digest(self) -> bytes | None:
        """The file's token hashed; None where there is none: then nothing matches."""
        try:
            token = self._path.read_bytes().strip() if self._path is not None else b""
        except OSError:
            return None
        return hashlib.sha256(token).digest() if token else None


async def livez(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /livez."""
    fault = serving.live()
    if fault is not None:
        return serving.response(request, 503, orjson.dumps({"status": "failed", "reason": fault}))
    return serving.response(request, 200, b'{"status":"ok"}')


async def readyz(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /readyz."""
    lifecycle = serving.lifecycle
    body: dict[str, object] = {"status": lifecycle.phase.value}
    if serving.loading is not None and serving.link.ready is None:
        body["load"] = {"phase": serving.loading.phase, "fraction": serving.loading.fraction}
    ready = lifecycle.ready and serving.live() is None
    return serving.response(request, 200 if ready else 503, orjson.dumps(body))


async def metrics(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /metrics."""
    return serving.response(request, 200, serving.metrics.render(), {"Content-Type": CONTENT_TYPE})


async def get_limits(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /limits."""
    return serving.response(request, 200, orjson.dumps(limits.as_json(serving.limits(), serving.lifecycle.coming.left)))


async def patch_limits(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """PATCH /limits; answers with the limits in force once the engine has taken them."""
    body = await read_object(request)
    patch = limits.parse_patch(body, serving.limits(), serving.options.max_num_seqs, serving.options.max_batched_tokens)
    notice = limits.parse_notice(body)
    if notice is not None:
        serving.lifecycle.coming.tell(*notice)
    if set(body) == limits.NOTICE:  # it moves no limit, so an engine that loads can take it
        return await get_limits(request, serving)
    serving.check_loaded()
    if patch != ipc.LimitsPatch():
        serving.link.send(patch)
        until = time.monotonic() + REPORT_SECONDS
        while not limits.applied(patch, serving.limits()) and (left := until - time.monotonic()) > 0:
            await serving.link.next_report(left)
    return await get_limits(request, serving)


async def drain(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /drain: unready now, refusing after the grace, what runs finishes; the process stays."""
    serving.lifecycle.drain()
    return serving.response(request, 202, orjson.dumps({"status": serving.lifecycle.phase.value}))


async def state(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /state: the scheduler's snapshot."""
    serving.check_loaded()
    try:
        snapshot = await serving.link.state()
    except (EngineGone, TimeoutError) as error:
        raise Unavailable("The engine does not answer.", code="engine_silent", retry_after=1.0) from error
    snapshot["server"] = {"phase": serving.lifecycle.phase.value, "in_flight": serving.link.in_flight}
    return serving.response(request, 200, orjson.dumps(snapshot, option=orjson.OPT_NON_STR_KEYS))


def routes(token: AdminToken) -> Routes:
    """What the admin port answers."""

    def guarded(handler: Handler) -> Handler:
        async def checked(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
            token.check(request)
            return await handler(request, serving)

        return checked

    return {
        contract.PATH_LIVEZ: {"GET": livez},
        contract.PATH_READYZ: {"GET": readyz},
        contract.PATH_METRICS: {"GET": metrics},
        contract.PATH_LIMITS: {"GET": get_limits, "PATCH": guarded(patch_limits)},
        contract.PATH_DRAIN: {"POST": guarded(drain)},
        contract.PATH_STATE: {"GET": state},
    }
