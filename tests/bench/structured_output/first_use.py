"""What the first use of a large schema adds over HTTP: to its own request, and to the streams beside it.

`python -m tests.bench.structured_output.first_use` starts a `sluice serve` of SmolLM2, keeps eight streams running and sends requests of
three kinds in turn: without a schema, with a schema of 11 kB that was never sent before, and with that schema again. It
prints what each kind adds to its time to first token, and the gaps between the events of the eight streams meanwhile.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from sluice import contract
from sluice_engine.pulled import pull
from tests.bench.processes.server import served

STREAMS, REPETITIONS, TOKENS = 8, 40, 8
STREAM_TOKENS: Final = 900
WINDOW_SECONDS: Final = 0.4  # of the streams' gaps after each request
KINDS: Final = ("no schema", "first use", "used before")
MOST_MS: Final = 100.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind. Seconds."""

    first_token: list[float] = field(default_factory=list)  # from a request to its first token
    gaps: list[float] = field(default_factory=list)  # between events of the streams beside
    longest: list[float] = field(default_factory=list)  # of these gaps, beside each request


@dataclass(slots=True)
class Stream:
    """A client that sends one request after another."""

    seen: list[float] = field(default_factory=list)  # times of the events of the current response
    gaps: list[tuple[float, float]] = field(default_factory=list)  # end and length of each gap
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, session: aiohttp.ClientSession, body: Mapping[str, Any]) -> None:
        """Repeat the request until this task is cancelled."""
        while True:
            self.seen.clear()
            async for _ in events(session, body):
                now = time.perf_counter()
                if self.seen:
                    self.gaps.append((now, now - self.seen[-1]))
                self.seen.append(now)
                self.started.set()


def main() -> int:
    """Returns 0 if the first use adds at most MOST_MS at the median."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.structured_output.first_use", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the model; all by default")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    given = parser.parse_args()
    added = [run(given.threads, given.repetitions, schema) for schema in (None, rows())]
    return 0 if max(added) <= MOST_MS else 1


def run(threads: int, repetitions: int, beside: Mapping[str, Any] | None) -> float:
    """Measure and print. `beside`: the schema of the streams. Returns the milliseconds that the first use adds."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = asyncio.run(measure(Path(folder) / "log", threads, repetitions, beside))
    size = len(json.dumps(large(0))) / 1000
    sys.stdout.write(
        f"{STREAMS} streams {'without a schema' if beside is None else 'with a small schema'}; {repetitions} requests "
        f"of each kind; a schema of {size:.0f} kB; {threads} threads\n"
    )
    for name, kind in kinds.items():
        gaps = sorted(1000 * gap for gap in kind.gaps)
        sys.stdout.write(
            f"  {name:<12} time to first token {1000 * statistics.median(kind.first_token):6.1f} ms "
            f"(+ {added_ms(kinds, name):4.1f}); gaps p50 {statistics.median(gaps):5.1f}, "
            f"p99 {gaps[int(0.99 * len(gaps))]:5.1f}, max {gaps[-1]:5.1f} ms ({len(gaps)}), "
            f"longest beside a request {1000 * statistics.median(kind.longest):5.1f} ms\n"
        )
    return added_ms(kinds, "first use")


def added_ms(kinds: Mapping[str, Kind], name: str) -> float:
    """The median of what a kind adds to the time to first token of the request without a schema beside it."""
    pairs = zip(kinds[name].first_token, kinds["no schema"].first_token, strict=True)
    return 1000 * statistics.median(one - plain for one, plain in pairs)


async def measure(log: Path, threads: int, repetitions: int, schema: Mapping[str, Any] | None) -> dict[str, Kind]:
    """The kinds by name. Raises ServerFailed and aiohttp.ClientError."""
    kinds = {name: Kind() for name in KINDS}
    async with (
        served(pull("smollm2"), threads, 2 * STREAMS, log) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=600)) as session,
        streaming(session, schema) as streams,
    ):
        for number in range(-1, repetitions):
            order = KINDS if number % 2 else ("first use", "used before", "no schema")
            for name in order:
                begun = time.perf_counter()
                first_token = await _first_token(session, number, name)
                await asyncio.sleep(begun + WINDOW_SECONDS - time.perf_counter())  # the streams run on meanwhile
                if number >= 0:  # the first of each kind warms the server up
                    kinds[name].first_token.append(first_token)
                    beside = [gap for each in streams for end, gap in each.gaps if end > begun]
                    kinds[name].gaps.extend(beside)
                    kinds[name].longest.append(max(beside))
    return kinds


@asynccontextmanager
async def streaming(
    session: aiohttp.ClientSession, schema: Mapping[str, Any] | None
) -> AsyncIterator[Sequence[Stream]]:
    """Streams that run meanwhile; each has its first token. Raises aiohttp.ClientError if one of them fails."""
    streams = [Stream() for _ in range(STREAMS)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(each.run(session, request(f"Order {number} as JSON:", STREAM_TOKENS, schema)))
            for number, each in enumerate(streams)
        ]
        await asyncio.gather(*(each.started.wait() for each in streams))
        yield streams
        for task in tasks:
            task.cancel()


async def _first_token(session: aiohttp.ClientSession, number: int, kind: str) -> float:
    schema = None if kind == "no schema" else large(number)
    body = request(f"{kind} {number}: all the fields, please, as one object of JSON:", TOKENS, schema)
    begun = time.perf_counter()
    found = [time.perf_counter() - begun async for _ in events(session, body)]
    return found[0]


async def events(session: aiohttp.ClientSession, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """The events of a streamed response with text in them. Raises aiohttp.ClientError."""
    async with session.post(contract.PATH_COMPLETIONS, json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {"):
                yield line


def request(prompt: str, tokens: int, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A greedy completion as a stream, of exactly so many tokens unless a schema ends it."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    return body | ({"ignore_eos": True} if schema is None else {"guided_json": schema})


def rows() -> dict[str, Any]:
    """A small schema with a long output."""
    fields = {"sku": {"type": "string", "maxLength": 24}, "quantity": {"type": "integer", "minimum": 1, "maximum": 999}}
    row = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "array", "items": row, "minItems": 200}


def large(number: int) -> dict[str, Any]:
    """A schema of 11 kB that has no property in common with that of another number."""
    fields = {
        f"field_{number}_{place}": {
            "type": "object",
            "properties": {
                "kind": {"enum": [f"a{place}", f"b{place}", "c"]},
                "value": {"type": ["number", "null"]},
                "note": {"type": "string", "maxLength": 40},
            },
            "required": ["kind", "value"],
            "additionalProperties": False,
        }
        for place in range(46)
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


if __name__ == "__main__":
    sys.exit(main())
