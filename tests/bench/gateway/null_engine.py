"""Replicas that answer at once: 16 events and no model. `python -m tests.bench.gateway.null_engine COUNT` prints their ports.

A request with the header `x-hold` gets one event and then nothing until its client leaves.
"""

import asyncio
import json
import sys
from typing import Final

from aiohttp import web

EVENTS: Final = 16
_EVENT: Final = b'data: {"choices":[{"index":0,"delta":{"content":"token "}}]}\n\n'
LOAD: Final = {
    "model": "null", "phase": "serving", "ready": True, "running": 0, "waiting": 0, "limit": 4096, "ttft_target_seconds": 2.0, "prefill_tokens": 0,
    "output_tokens": 16.0, "kv_held_tokens": 0, "kv_total_tokens": 2_000_000,
    "step_model": {"base": 0.02, "prefill_token": 1e-4, "prefill_context": 0.0, "sequence": 1e-3, "kv_token": 0.0},
}  # fmt: skip


async def _chat(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if "x-hold" in request.headers:
        await response.write(_EVENT)
        await asyncio.Event().wait()
    for _ in range(EVENTS):
        await response.write(_EVENT)
    await response.write(b"data: [DONE]\n\n")
    return response


async def _load(_: web.Request) -> web.Response:
    return web.json_response(LOAD)


async def main(count: int) -> None:
    """Serve `count` replicas, each with a data and an admin port, until the process is ended."""
    ports = []
    for _ in range(count):
        data, admin = web.Application(), web.Application()
        data.router.add_post("/v1/chat/completions", _chat)
        admin.router.add_get("/load", _load)
        for app in (data, admin):
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
            ports.append(runner.addresses[0][1])
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
