"""A rolling update of the gateways under load: two processes are replaced in turn, and the official client loses nothing."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from aiohttp import web
from openai import AsyncOpenAI

from tests.gateway.engines import FakeEngine
from tests.gateway.load.processes import gateway_process
from tests.gateway.load.service import Service

CLIENTS: Final = 12
TOKENS: Final = 8
SECONDS_PER_TOKEN: Final = 0.02
ANSWERS: Final = 40  # between two steps of the update
LAG: Final = 10  # answers until the end of an endpoint has reached every node
GRACE_SECONDS: Final = "3"  # more than the lag


async def stream_tokens(request: web.Request) -> web.StreamResponse:
    """An engine's stream of TOKENS tokens."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(TOKENS):
        await asyncio.sleep(SECONDS_PER_TOKEN)  # its step
        choice = {"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}
        event = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "chat", "choices": [choice]}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
    await response.write_eof(b"data: [DONE]\n\n")
    return response


class Load:
    """Clients that ask for one stream after the other until `stopped`."""

    def __init__(self) -> None:
        self.stopped = False
        self.failures: list[str] = []
        self._answered = asyncio.Semaphore(0)

    async def answers(self, count: int) -> None:
        """Return once there are so many more answers."""
        async with asyncio.timeout(120):
            for _ in range(count):
                await self._answered.acquire()

    async def client(self, port: int) -> None:
        """One client with its default retries and its own connections."""
        async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
            while not self.stopped:
                try:
                    text = await said(client)
                except Exception as error:  # noqa: BLE001 - whatever the client raises is a failed request
                    self.failures.append(repr(error))
                else:
                    if text != "".join(f"{number} " for number in range(TOKENS)):
                        self.failures.append(text)
                self._answered.release()


async def said(client: AsyncOpenAI) -> str:
    """The text of one stream."""
    stream = await client.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "Count."}], stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


def served(log: Path) -> int:
    """Streams that a gateway has passed on whole, by its log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert not [line for line in lines if "cut off" in line["message"]]
    return sum(line.get("status") == 200 and "error" not in line for line in lines)


async def test_gateways_that_are_replaced_in_turn_lose_no_request(tmp_path: Path) -> None:
    replicas = [FakeEngine(f"r{number}", answer=stream_tokens) for number in range(2)]
    async with AsyncExitStack() as stack:
        for replica in replicas:
            await replica.start()
            stack.push_async_callback(replica.stop)
        logs = [tmp_path / f"gateway-{number}" for number in range(4)]
        options = ("--grace-seconds", GRACE_SECONDS, "--drain-seconds", "60")
        gateways = [await stack.enter_async_context(gateway_process(replicas, log, *options)) for log in logs[:2]]
        service, load = Service(*(gateway.port for gateway in gateways)), Load()
        await stack.enter_async_context(service.listening())
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(load.client(service.port))
            await load.answers(ANSWERS)
            for old, log in zip(gateways, logs[2:], strict=True):
                new = await stack.enter_async_context(gateway_process(replicas, log, *options))
                service.endpoints.append(new.port)
                ending = asyncio.create_task(old.terminate())
                await load.answers(LAG)
                service.endpoints.remove(old.port)
                assert await ending == 0
                await load.answers(ANSWERS)
            load.stopped = True
    assert load.failures == []
    assert min(served(log) for log in logs) >= LAG
