"""`/healthz` and `/metrics` of the operator. Healthy means that the watches work, not only that this port answers."""

from collections.abc import Callable

from aiohttp import web

from sluice_operator.metrics import CONTENT_TYPE, OperatorMetrics


class Health:
    """A small HTTP server; `close()` must be awaited."""

    def __init__(self, fault: Callable[[], str], metrics: OperatorMetrics) -> None:
        """`fault()` returns the fault as a sentence; empty without a fault."""
        self._fault = fault
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._text)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, port: int) -> None:
        """Listen on `port`. Raises OSError if it is in use."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", port).start()

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        wrong = self._fault()
        return web.Response(status=503, text=f"{wrong}\n") if wrong else web.Response(text="ok\n")

    async def _text(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})
