"""Answers for all fake pods: the /metrics of a real engine, with counters that grow as under load, and /limits.

Started as a process with the file of the metrics; prints the number of scrapes and of limits every second.
"""

import asyncio
import re
import sys
import time
from pathlib import Path
from typing import Final

from aiohttp import web

from sluice import contract

_COUNTER: Final = re.compile(r"^(\S*?_(?:total|bucket|count|sum)(?:\{.*\})?) (\S+)$", re.MULTILINE)
_GROWTH_SECONDS: Final = 60.0  # in which a counter grows by what the engine counted in the recording


class Responder:
    """One text for all pods, made anew each second."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begun = time.monotonic()
        self._made: tuple[int, bytes] = (-1, b"")
        self.scrapes = self.limits = 0

    async def metrics(self, _: web.Request) -> web.Response:
        """The metrics now."""
        self.scrapes += 1
        second = int(time.monotonic() - self._begun)
        if self._made[0] != second:
            factor = 1 + second / _GROWTH_SECONDS
            self._made = (
                second,
                _COUNTER.sub(lambda found: f"{found[1]} {float(found[2]) * factor}", self._text).encode(),
            )
        return web.Response(body=self._made[1], content_type="text/plain")

    async def limit(self, request: web.Request) -> web.Response:
        """Accept limits."""
        await request.read()
        self.limits += 1
        return web.json_response({})


async def serve(text: str) -> None:
    """Answer on every address until the process ends."""
    responder = Responder(text)
    app = web.Application()
    app.router.add_get(contract.PATH_METRICS, responder.metrics)
    app.router.add_patch(contract.PATH_LIMITS, responder.limit)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", contract.ADMIN_PORT).start()
    while True:
        sys.stdout.write(f"{responder.scrapes} {responder.limits}\n")
        sys.stdout.flush()
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).read_text()))
