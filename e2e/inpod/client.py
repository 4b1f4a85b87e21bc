"""Runs in a pod: sends requests, compares their texts with references, and retries as the official client does.

Usage: client.py REFERENCES.json MODEL SERVICE_URL [--pin URL...] [--each N] [--apart S] [--requests N] [--seconds S]
[--long] [--whole]

Without --pin, `--each` clients send through the Service, one request after the other, until `--requests` are done,
`--seconds` have passed, or the file STOP exists; they start `--apart` seconds after one another. With --pin, `--each`
clients per pinned engine start one stream after the other on it. If the engine refuses, they continue through the Service,
and the first refusal ends the start of new streams.
--whole requests responses in one piece: those can be retried when an engine dies.

A request fails when its last attempt fails: the official client retries twice, on connection errors, 408, 409, 429 and
5xx, never inside a stream. The last line is JSON: {requests, streams_pinned, retries, failed, seconds}.
"""

import argparse
import asyncio
import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import aiohttp

TRIES = 3
AGAIN = {408, 409, 429}
STOP = Path("/tmp/stop")  # created to end the run early


class Refused(Exception):
    """A response that the official client retries, with the server's Retry-After in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Load:
    """One run, with counters and questions that all clients share."""

    def __init__(self, arguments: argparse.Namespace, references: list[dict[str, Any]]) -> None:
        self.arguments = arguments
        self.questions = itertools.cycle(references)
        self.requests = self.pinned = self.retries = 0
        self.failed: list[str] = []
        self.ends_at = time.monotonic() + arguments.seconds

    def goes_on(self) -> bool:
        """True if another request should start."""
        ended = time.monotonic() >= self.ends_at or STOP.exists()
        return not ended and self.requests < self.arguments.requests

    async def client(self, http: aiohttp.ClientSession, pin: str | None, after: float) -> None:
        """Send requests one after the other, the first one `after` seconds from now."""
        await asyncio.sleep(after)
        while self.goes_on():
            self.requests += 1
            reference = next(self.questions)
            try:
                text = await self.ask(http, reference, pin)
            except (TimeoutError, Refused, aiohttp.ClientError, OSError, ValueError) as failure:
                self.failed.append(f"{reference['question']!r}: {type(failure).__name__}: {failure}")
                continue
            if text != reference["text"]:
                self.failed.append(f"{reference['question']!r}: got {text!r} instead of {reference['text']!r}")

    async def ask(self, http: aiohttp.ClientSession, reference: dict[str, Any], pin: str | None) -> str:
        """Send one request, with the retries of the official client."""
        for attempt in range(TRIES):
            pinned_now = pin is not None and attempt == 0
            base = pin if pinned_now and pin is not None else self.arguments.service
            try:
                text = await self.once(http, base, reference, attempt)
            except (Refused, aiohttp.ClientConnectionError) as failure:
                if pinned_now:
                    self.ends_at = 0.0
                if attempt == TRIES - 1:
                    raise
                self.retries += 1
                wait = getattr(failure, "retry_after", None)
                await asyncio.sleep(wait if wait is not None else min(0.5 * 2**attempt, 8) * random.uniform(0.75, 1))
            else:
                self.pinned += pinned_now
                return text
        raise AssertionError("unreachable: the last try returns or raises")

    async def once(self, http: aiohttp.ClientSession, base: str, reference: dict[str, Any], attempt: int) -> str:
        """Make one attempt.

        Raises Refused for a retryable error, ValueError for any other one, also within a stream.
        """
        body = {
            "model": self.arguments.model,
            "messages": [{"role": "user", "content": reference["question"]}],
            "max_tokens": reference["max_tokens"],
            "temperature": 0,
            "stream": not self.arguments.whole,
        }
        if reference["ignore_eos"]:
            body["ignore_eos"] = True
        headers = {"x-stainless-retry-count": str(attempt)}
        async with http.post(f"{base}/v1/chat/completions", json=body, headers=headers) as answer:
            if answer.status in AGAIN or answer.status >= 500:
                after = answer.headers.get("Retry-After", "")
                raise Refused(f"{answer.status}: {await answer.text()}", float(after) if after.isdigit() else None)
            if answer.status != 200:
                raise ValueError(f"{answer.status}: {await answer.text()}")
            if self.arguments.whole:
                return str((await answer.json())["choices"][0]["message"]["content"])
            return await stream_text(answer)


async def stream_text(answer: aiohttp.ClientResponse) -> str:
    """The text of a stream. Raises ValueError if it ends without [DONE] or contains an error."""
    pieces: list[str] = []
    try:
        async for raw in answer.content:
            line = raw.decode().strip()
            if line == "data: [DONE]":
                return "".join(pieces)
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise ValueError(f"error inside the stream: {event['error']}")
            for choice in event["choices"]:
                pieces.append(choice["delta"].get("content") or "")
    except aiohttp.ClientError as broken:
        raise ValueError(f"the stream broke after {len(''.join(pieces))} characters: {broken}") from broken
    raise ValueError(f"the stream ended without [DONE] after {len(''.join(pieces))} characters")


async def main() -> None:
    """Run the load and print its account."""
    parser = argparse.ArgumentParser()
    parser.add_argument("references", type=Path)
    parser.add_argument("model")
    parser.add_argument("service")
    parser.add_argument("--pin", nargs="*", default=[])
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--apart", type=float, default=1.0)
    parser.add_argument("--requests", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    references = [r for r in json.loads(arguments.references.read_text()) if r["ignore_eos"] == arguments.long]
    load = Load(arguments, references)
    started = time.monotonic()
    # One connection per request, as with many clients, so that the load spreads over all pods of the Service.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as http:
        pins: list[str | None] = list(arguments.pin) or [None]
        # Streams that start together end together, and an engine that drains at that moment would have none.
        starts = [arguments.apart * number for number in range(arguments.each)]
        await asyncio.gather(*(load.client(http, pin, after) for pin in pins for after in starts))
    account = {
        "requests": load.requests,
        "streams_pinned": load.pinned,
        "retries": load.retries,
        "failed": load.failed,
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(account))


if __name__ == "__main__":
    asyncio.run(main())
