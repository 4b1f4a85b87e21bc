"""The peer: the least that a streaming proxy of the same library does. `python -m tests.bench.gateway.plain_proxy URL`."""

import asyncio
import sys

import aiohttp
from aiohttp import web


async def main(upstream: str) -> None:
    """Pass every POST on to `upstream`; prints its own port."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name: request.headers[name] for name in ("Content-Type", "x-hold") if name in request.headers}
        async with session.post(upstream + request.path_qs, data=body, headers=headers) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            while chunk := await answer.content.readany():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    sys.stdout.write(f"[{runner.addresses[0][1]}]\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
