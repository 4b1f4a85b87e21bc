"""Clients of every kind at once: whole and cut streams, schemas, tools, bad input, bodies that never end."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp

EXPECTED: Final = frozenset({200, 400, 404, 408, 413, 415, 429, 503})
NO_ANSWER: Final = 0
WORDS: Final = ("the", "cache", "of", "a", "replica", "waits", "for", "blocks", "and", "tokens", "größer", "日本")
CHAT: Final = "/v1/chat/completions"

Client = Callable[["Churn", aiohttp.ClientSession], Awaitable[None]]


class Churn:
    """One server, the choices of the clients, and the statuses that they saw."""

    def __init__(self, url: str, seed: int, workers: int) -> None:
        self.url, self.workers = url, workers
        self.random = random.Random(seed)
        self.statuses: Counter[int] = Counter()

    async def run(self, seconds: float) -> None:
        """Sends requests for so long, then returns when the last one has its answer."""
        ends = time.monotonic() + seconds
        timeout = aiohttp.ClientTimeout(total=600)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._worker(session, ends) for _ in range(self.workers)))

    async def _worker(self, session: aiohttp.ClientSession, ends: float) -> None:
        while time.monotonic() < ends:
            try:
                await self.random.choice(CLIENTS)(self, session)
            except (aiohttp.ClientError, TimeoutError):
                self.statuses[NO_ANSWER] += 1

    def text(self, most: int = 60) -> str:
        """A prompt that was hardly sent before."""
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, most)))

    def chat(self, **fields: Any) -> dict[str, Any]:
        """A chat."""
        tokens = self.random.randint(1, 24)
        return {"model": "tiny", "messages": [{"role": "user", "content": self.text()}], "max_tokens": tokens} | fields

    async def post(self, session: aiohttp.ClientSession, path: str, body: Any, *, events: int | None = None) -> None:
        """Posts a body and reads the answer; of a stream only so many pieces, then the connection is cut."""
        async with session.post(self.url + path, json=body) as response:
            self.statuses[response.status] += 1
            if events is None:
                await response.read()
                return
            for _ in range(events):
                if not await response.content.readany():
                    return
            response.close()


async def whole(churn: Churn, session: aiohttp.ClientSession) -> None:
    """Answers that are read to their end."""
    more: dict[str, Any] = churn.random.choice(
        [{}, {"stream": True}, {"n": 3, "temperature": 1.2}, {"logprobs": True, "top_logprobs": 3}]
    )
    await churn.post(session, CHAT, churn.chat(**more))


async def cut(churn: Churn, session: aiohttp.ClientSession) -> None:
    """A client that leaves, before the first token or within the stream."""
    await churn.post(session, CHAT, churn.chat(stream=True, max_tokens=200), events=churn.random.randint(0, 3))


async def schema(churn: Churn, session: aiohttp.ClientSession) -> None:
    """A schema that is new to the server."""
    name = f"field_{churn.random.randrange(10**9)}"
    given = {"type": "object", "properties": {name: {"enum": ["a", "b"]}}, "required": [name]}
    await churn.post(session, CHAT, churn.chat(guided_json=given | {"additionalProperties": False}))


async def tools(churn: Churn, session: aiohttp.ClientSession) -> None:
    """A call that must happen, and one that may."""
    function = {"name": f"call_{churn.random.randrange(50)}", "parameters": {"type": "object", "properties": {}}}
    choice = churn.random.choice(["required", "auto"])
    tool = {"type": "function", "function": function}
    await churn.post(session, CHAT, churn.chat(tools=[tool], tool_choice=choice, stream=True))


async def others(churn: Churn, session: aiohttp.ClientSession) -> None:
    """The other endpoints."""
    text = churn.text()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"model": "tiny", "prompt": [text, churn.text()], "max_tokens": 4, "echo": True}),
        ("/v1/responses", {"model": "tiny", "input": text, "max_output_tokens": 8, "stream": True}),
        ("/v1/messages", {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8}),
        ("/tokenize", {"prompt": text}),
        ("/v1/embeddings", {"model": "tiny", "input": text}),
    ]  # fmt: skip
    path, body = churn.random.choice(calls)
    await churn.post(session, path, body)


async def bad(churn: Churn, session: aiohttp.ClientSession) -> None:
    """What is refused."""
    await churn.post(session, CHAT, churn.random.choice([
        {}, [], churn.chat(temperature=9), churn.chat(model="other"), churn.chat(guided_regex="(" * 2000),
        churn.chat(max_tokens=10**9), churn.chat(guided_json={"type": "array", "uniqueItems": True}), churn.chat(stop=[""]),
    ]))  # fmt: skip


async def too_large(churn: Churn, session: aiohttp.ClientSession) -> None:
    """A body over the limit, whose connection ends before all of it is sent."""
    headers = {"Content-Type": "application/json"}
    with contextlib.suppress(aiohttp.ClientConnectionError):
        async with session.post(churn.url + CHAT, data=b" " * (9 << 20), headers=headers) as response:
            churn.statuses[response.status] += 1


async def unfinished(churn: Churn, session: aiohttp.ClientSession) -> None:
    """A request whose body never comes whole: the client gives up. It needs a connection of its own."""
    host, port = churn.url.removeprefix("http://").split(":")
    writer = (await asyncio.open_connection(host, int(port)))[1]
    body = json.dumps(churn.chat()).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body[: churn.random.randrange(len(body))])
    await writer.drain()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


CLIENTS: Final[tuple[Client, ...]] = (
    whole, whole, whole, cut, cut, schema, tools, others, others, bad, bad, too_large, unfinished,
)  # fmt: skip
