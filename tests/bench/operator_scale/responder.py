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
_BOUND: Final = re.compile(rf'^({contract.ADMISSION_LIMIT}\{{kind="concurrency_(min|max)"\}}) \S+$', re.MULTILINE)
_DEFAULT: Final = {"min": 1, "max": 256}
_GROWTH_SECONDS: Final = 60.0  # in which a counter grows by what the engine counted in the recording


class Responder:
    """One text for all pods, made anew each second."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begun = time.monotonic()
        self._made: tuple[int, bytes] = (-1, b"")
        self._bounds: dict[str, dict[str, int]] = {}  # by the address of the pod
        self.scrapes = self.limits = 0

    async def metrics(self, request: web.Request) -> web.Response:
        """The metrics now, with the bounds that this pod was sent."""
        self.scrapes += 1
        second = int(time.monotonic() - self._begun)
        if self._made[0] != second:
            factor = 1 + second / _GROWTH_SECONDS
            text = _COUNTER.sub(lambda found: f"{found[1]} {float(found[2]) * factor}", self._text)
            self._made = second, _BOUND.sub(lambda found: f"{found[1]} @{found[2]}@", text).encode()
        body = self._made[1]
        for end, value in self._bounds.get(request.host, _DEFAULT).items():
            body = body.replace(b"@%s@" % end.encode(), b"%d" % value)
        return web.Response(body=body, content_type="text/plain")

    async def limit(self, request: web.Request) -> web.Response:
        """Accept limits."""
        sent = await request.json()
        self.limits += 1
        if "max_concurrent" in sent:
            self._bounds[request.host] = sent["max_concurrent"]
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
