"""Real engines killed in turn at half load: no request fails before its first byte, and no resumable stream breaks.

Every other stream asks for `resume`. Which replica a broken stream was at is read from the gateway's own log.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import aiohttp

from sluice import contract
from sluice_engine.tiny import ensure
from tests.bench.gateway.processes import Engine, Started, gateway, killable_engine
from tests.bench.processes.server import free_ports
from tests.bench.report.row import Report, Row, at_least, at_most

REPLICAS: Final = 4
MINUTES: Final = float(os.environ.get("KILL_MINUTES", "10"))
KILL_SECONDS: Final = 20.0
NEAR_SECONDS: Final = 5.0  # between a kill and the end of a stream that it broke
SEQUENCES: Final = 8  # that an engine runs at once
OUTPUT_TOKENS: Final = 16
STEP_SECONDS: Final = 0.1
PACE: Final = f"base={STEP_SECONDS},sequence=0.001"
CAPACITY: Final = REPLICAS * SEQUENCES / (OUTPUT_TOKENS * (STEP_SECONDS + 0.001 * SEQUENCES))  # requests per second
RATE: Final = CAPACITY / 2.0


@dataclass
class Found:
    """Counts of requests. `elsewhere`: streams that broke at a replica that had not just been killed."""

    asked: int = 0
    kills: int = 0
    failed: int = 0
    broken: int = 0
    broken_resumable: int = 0
    repeated: int = 0
    resumed: float = 0.0
    elsewhere: int = 0
    faults: list[str] = field(default_factory=list)


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of this part."""
    say(f"{RATE:.1f} streams/s for {MINUTES:g} minutes, a replica killed every {KILL_SECONDS:g} s")
    found = asyncio.run(_run(out))
    rows: Sequence[Row] = [
        at_least("replicas killed", float(found.kills), MINUTES * 60.0 / KILL_SECONDS - 1.0),
        at_most(f"requests of {found.asked} that failed before the first byte", float(found.failed), 0.0),
        at_most("streams broken with resume", float(found.broken_resumable), 0.0),
        at_most("resumed streams whose text differs", float(found.repeated), 0.0),
        at_most(f"of {found.broken} broken streams, at a replica that was not killed", float(found.elsewhere), 0.0),
        Row("streams that went on at another replica", f"{found.resumed:g}"),
    ]
    return Report(rows, asdict(found))


async def _run(out: Path) -> Found:
    found = Found()
    log = out / "gateway-kills.log"
    async with AsyncExitStack() as stack:
        engines = [Engine(free_ports(2), out / f"killed-{number}.log") for number in range(REPLICAS)]
        options = ("--pace", PACE, "--max-num-seqs", str(SEQUENCES), "--concurrency-min", str(SEQUENCES))
        for engine in engines:
            await stack.enter_async_context(killable_engine(engine, ensure(), options))
        await asyncio.gather(*(engine.ready() for engine in engines))
        urls = tuple(url for engine in engines for url in engine.urls)
        ours = await stack.enter_async_context(gateway(Started(0, urls), log=log))
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        texts = {await _text(client, ours.urls[0], {}, found)} | {
            await _text(client, ours.urls[0], {"resume": True}, found)
        }
        killing = asyncio.create_task(_kill_in_turn(engines, found))
        await _load(client, ours.urls[0], texts, found)
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
        async with client.get(ours.urls[1] + contract.PATH_METRICS) as response:
            lines = dict(line.rsplit(" ", 1) for line in (await response.text()).splitlines() if line[:1] != "#")
        found.resumed = float(lines[contract.GATEWAY_RESUMED])
    _read_log(log, engines, found)
    return found


async def _kill_in_turn(engines: Sequence[Engine], found: Found) -> None:
    """A killed engine is started again at once, as its pod would be."""
    while True:
        await asyncio.sleep(KILL_SECONDS)
        engine = engines[found.kills % len(engines)]
        found.kills += 1
        await engine.kill()
        await engine.start()


async def _load(client: aiohttp.ClientSession, url: str, texts: set[str | None], found: Found) -> None:
    """Streams at RATE until the time is over."""
    begun = time.perf_counter()

    async def one(number: int) -> None:
        await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
        resume = number % 2 == 0
        text = await _text(client, url, {"resume": True} if resume else {}, found)
        if resume and text is not None and text not in texts:
            found.repeated += 1

    async with asyncio.TaskGroup() as group:
        for number in range(int(MINUTES * 60.0 * RATE)):
            group.create_task(one(number))


async def _text(client: aiohttp.ClientSession, url: str, more: dict[str, bool], found: Found) -> str | None:
    """The whole text of one greedy stream; None if it is not whole, which is counted."""
    body = {
        "model": "tiny",
        "prompt": "caches and keys",
        "stream": True,
        "max_tokens": OUTPUT_TOKENS,
        "ignore_eos": True,
    }
    found.asked += 1
    content = b""
    try:
        async with client.post(url + contract.PATH_COMPLETIONS, json=body | {"temperature": 0} | more) as response:
            if response.status != 200:
                found.failed += 1
                found.faults.append(f"{response.status} {(await response.text())[:200]}")
                return None
            async for part in response.content.iter_any():
                content += part
    except (aiohttp.ClientError, OSError) as error:
        found.faults.append(repr(error))
    if not content:
        found.failed += 1
        return None
    if not content.endswith(b"data: [DONE]\n\n"):
        found.broken += 1
        found.broken_resumable += bool(more)
        return None
    events = [event.removeprefix(b"data: ") for event in content.split(b"\n\n")[:-2]]
    return "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])


def _read_log(log: Path, engines: Sequence[Engine], found: Found) -> None:
    """Counts the broken streams whose replica was not killed while they ran."""
    killed = {engine.name: engine.killed_at for engine in engines}
    for line in log.read_text().splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("error") != "upstream_lost":
            continue
        name = entry["way"][-1].partition(" ")[0]
        ended = datetime.fromisoformat(entry["time"]).timestamp()
        found.elsewhere += not any(abs(ended - at) < NEAR_SECONDS for at in killed.get(name, []))
