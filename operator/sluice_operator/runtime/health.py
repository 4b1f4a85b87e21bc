"""`/healthz`, `/metrics` and, where it is asked for, `/debug/profile` of the operator.

Healthy means that the watches work, not only that this port answers. `/healthz` is open to the probes of the kubelet; the
others may need the release's token of reads.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

from sluice.auth.read_tokens import CHALLENGE, UNAUTHORIZED, is_read_allowed
from sluice_operator.metrics import CONTENT_TYPE, OperatorMetrics
from sluice_operator.runtime.profiler import MOST_SECONDS, profile, this_thread


class Health:
    """A small HTTP server; `close()` must be awaited."""

    def __init__(
        self,
        fault: Callable[[], str],
        metrics: OperatorMetrics,
        *,
        has_profiler: bool = False,
        read_token: Callable[[], str] | None = None,
    ) -> None:
        """`fault()` returns the fault as a sentence; empty without a fault.

        `read_token()` is the token that reads need, empty while it is not known, and then none is answered; None: reads
        are open.
        """
        self._fault = fault
        self._read_token = read_token
        self._metrics = metrics
        self._is_profiling = False
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._text)
        if has_profiler:
            app.router.add_get("/debug/profile", self._profile)
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

    def _refused(self, request: web.Request) -> web.Response | None:
        if self._read_token is None or is_read_allowed(request, [self._read_token()]):
            return None
        return web.Response(status=401, text=f"{UNAUTHORIZED}\n", headers=CHALLENGE)

    async def _text(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _profile(self, request: web.Request) -> web.Response:
        """Folded stacks of the next `seconds` (default 10)."""
        if (refused := self._refused(request)) is not None:
            return refused
        text = request.query.get("seconds", "10")
        if not text.isdecimal() or not 1 <= int(text) <= MOST_SECONDS:
            return web.Response(
                status=400, text=f"seconds is {text!r}: it must be an integer from 1 to {MOST_SECONDS:.0f}\n"
            )
        if self._is_profiling:
            return web.Response(status=409, text="another profile is being taken: ask again when it is done\n")
        self._is_profiling = True
        try:
            return web.Response(text=await asyncio.to_thread(profile, float(text), this_thread()))
        finally:
            self._is_profiling = False
