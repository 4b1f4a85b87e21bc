"""How far the gateway's view of the caches is from the truth, with the engines' events (`--kv-events`) and without.

Mooncake's conversations (as in `caches`) over two engines whose KV caches hold few of them, through one gateway and through
two in turn, which do not know each other's requests. The truth is what an engine says of each prompt that it computes.
"""

import asyncio
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import aiohttp

from sluice import contract
from sluice_engine.tiny import ensure
from tests.bench.gateway.caches import prompts
from tests.bench.gateway.processes import gateway, paced_engines
from tests.bench.report.row import Report, Row

REPLICAS: Final = 2
KV_SIZE: Final = "12Mi"  # 6,144 tokens, some eight prompts
PACE: Final = "base=0.005,prefill_token=0.00005"
AT_ONCE: Final = 4
OUTPUT_TOKENS: Final = 16
REQUESTS: Final = 300


@dataclass(frozen=True, slots=True)
class View:
    """Means over all requests, in tokens of a prompt: its length, what was cached, and the error of the prediction."""

    requests: int
    prompt: float
    cached: float
    error: float
    bias: float


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of this part."""
    found: dict[str, View] = {}
    for gateways in (1, 2):
        for options in ((), ("--kv-events",)):
            name = f"{gateways} gateway{'s' * (gateways > 1)}, {'events' if options else 'estimate'}"
            say(f"Mooncake's conversations over small pools: {name}")
            found[name] = asyncio.run(_run(gateways, options, out))
    rows = []
    for which in ("1 gateway", "2 gateways"):
        ours, without = found[f"{which}, events"], found[f"{which}, estimate"]
        name = f"{which}: mean error of the predicted cached tokens, with events and without"
        rows.append(Row(name, f"{ours.error:.1f}, {without.error:.1f} of {ours.prompt:.0f} tokens"))
        rows.append(Row(f"{which}: cached, with events and without", f"{ours.cached:.0f}, {without.cached:.0f} tokens"))
    return Report(rows, {name: asdict(one) for name, one in found.items()})


async def _run(gateways: int, options: Sequence[str], out: Path) -> View:
    logs = [out / f"gateway-{number}.log" for number in range(gateways)]
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(paced_engines(ensure(), [PACE] * REPLICAS, out, KV_SIZE))
        ours = [await stack.enter_async_context(gateway(engines, *options, log=log)) for log in logs]
        client = await stack.enter_async_context(aiohttp.ClientSession())
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for number, text in enumerate(prompts()[:REQUESTS]):
                await places.acquire()
                task = group.create_task(_ask(client, ours[number % gateways].urls[0], text))
                task.add_done_callback(lambda _: places.release())
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    seen = [line for line in lines if "expected_cached_tokens" in line]
    errors = [line["expected_cached_tokens"] - line["cached_tokens"] for line in seen]
    return View(
        len(seen),
        statistics.mean(line["prompt_tokens"] for line in seen),
        statistics.mean(line["cached_tokens"] for line in seen),
        statistics.mean(map(abs, errors)),
        statistics.mean(errors),
    )


async def _ask(client: aiohttp.ClientSession, url: str, text: str) -> None:
    body = {"model": "tiny", "prompt": text, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    async with client.post(url + contract.PATH_COMPLETIONS, json=body) as response:
        await response.read()
        response.raise_for_status()
