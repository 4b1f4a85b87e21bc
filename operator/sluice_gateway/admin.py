"""The gateway's admin port: health for its pod's probes, metrics, which may need a token, and what the operator reads, which
always needs it. It is not for clients.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from aiohttp import web

from sluice import contract
from sluice.auth.read_tokens import CHALLENGE, UNAUTHORIZED, is_read_allowed
from sluice_gateway.catalog.base import AdminHandler
from sluice_gateway.metrics import CONTENT_TYPE, GatewayMetrics
from sluice_gateway.replicas.fleet import Fleet


class AdminRoutes:
    """`ready` becomes False when the gateway drains."""

    def __init__(
        self,
        fleet: Fleet,
        held: Callable[[], int],
        metrics: GatewayMetrics,
        missing: Callable[[], str] = lambda: "",
        more: Mapping[str, AdminHandler] = MappingProxyType({}),
        *,
        read_token: Callable[[], str] = lambda: "",
        is_guarded: bool = False,
    ) -> None:
        """`missing()` is what the gateway must know before it is ready, a clause. `more` are further paths, which need
        `read_token()`; an empty one matches none. `is_guarded`: metrics need it too."""
        self._read_token = read_token
        self._is_guarded = is_guarded
        self.ready = True
        self._fleet = fleet
        self._held = held
        self._metrics = metrics
        self._missing = missing
        self._more = more

    def app(self) -> web.Application:
        """The routes as an application."""
        app = web.Application()
        app.router.add_get(contract.PATH_LIVEZ, self._livez)
        app.router.add_get(contract.PATH_READYZ, self._readyz)
        app.router.add_get(contract.PATH_METRICS, self._guarded(self._render) if self._is_guarded else self._render)
        for path, handler in self._more.items():
            app.router.add_get(path, self._guarded(handler))
        return app

    def _guarded(self, handler: AdminHandler) -> AdminHandler:
        async def checked(request: web.Request) -> web.StreamResponse:
            if is_read_allowed(request, [self._read_token()]):
                return await handler(request)
            return web.Response(status=401, text=f"{UNAUTHORIZED}\n", headers=CHALLENGE)

        return checked

    async def _livez(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = self._missing()
        status = "draining" if not self.ready else f"waiting for {missing}" if missing else "ready"
        return web.json_response({"status": status}, status=200 if status == "ready" else 503)

    async def _render(self, _: web.Request) -> web.StreamResponse:
        states = self._fleet.states()
        ready = sum(state.ready for state in states)
        self._metrics.replicas.labels("ready").set(ready)
        self._metrics.replicas.labels("out").set(len(states) - ready)
        self._metrics.followed.set(sum(state.is_followed for state in states))
        self._metrics.held.set(self._held())
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})
