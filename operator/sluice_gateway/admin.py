"""The gateway's admin port: health for its pod's probes, and metrics. It is not for clients."""

from aiohttp import web

from sluice import contract
from sluice_gateway.holding import HoldQueue
from sluice_gateway.metrics import CONTENT_TYPE, GatewayMetrics
from sluice_gateway.replicas.fleet import Fleet


class AdminRoutes:
    """`ready` becomes False when the gateway drains."""

    def __init__(self, fleet: Fleet, hold_queue: HoldQueue, metrics: GatewayMetrics) -> None:
        self.ready = True
        self._fleet = fleet
        self._hold_queue = hold_queue
        self._metrics = metrics

    def app(self) -> web.Application:
        """The routes as an application."""
        app = web.Application()
        app.router.add_get(contract.PATH_LIVEZ, self._livez)
        app.router.add_get(contract.PATH_READYZ, self._readyz)
        app.router.add_get(contract.PATH_METRICS, self._render)
        return app

    async def _livez(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ready" if self.ready else "draining"}, status=200 if self.ready else 503)

    async def _render(self, _: web.Request) -> web.Response:
        states = self._fleet.states()
        ready = sum(state.ready for state in states)
        self._metrics.replicas.labels("ready").set(ready)
        self._metrics.replicas.labels("out").set(len(states) - ready)
        self._metrics.held.set(self._hold_queue.held)
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})
