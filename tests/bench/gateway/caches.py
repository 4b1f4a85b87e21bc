"""Mooncake's conversations over real engines: the gateway's policy beside round robin, and one replica slowed three times.

Four engines of the tiny model with paced steps, new ones for each run, so that all caches begin empty. The requests are those
of conversations that come back, in the trace's order and at a constant rate. A block of the trace (512 tokens) is a text of
about 100 tokens here, since the tiny model's context has 2,048.
"""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import aiohttp

from sluice import contract
from sluice_engine.tiny import ensure
from sluice_sim.data import bundled
from sluice_sim.traces.read import read_trace
from tests.bench.gateway.overhead import percentile
from tests.bench.gateway.processes import gateway, paced_engines
from tests.bench.report.row import Report, at_least, at_most

REPLICAS: Final = 4
REQUESTS: Final = 600
RATE: Final = 8.0  # requests per second, some 80 % of what the fleet computes under round robin
MOST_BLOCKS: Final = 16  # of a prompt: longer ones do not fit the tiny model
BLOCK_BYTES: Final = 256
OUTPUT_TOKENS: Final = 16
TERMS: Final = (("base", 0.02), ("prefill_token", 1e-3), ("sequence", 1e-3))
SLOW: Final = 3.0
MOST_TTFT: Final = 0.6  # times round robin's
LEAST_HITS: Final = 1.5
MOST_SKEW: Final = 1.3  # times the p99 of the fleet without the slow replica
_WORDS: Final = (
    "cache",
    "token",
    "model",
    "block",
    "step",
    "queue",
    "prompt",
    "batch",
    "key",
    "value",
    "limit",
    "load",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: times to first token in seconds, the hit ratio of all prompt tokens, and failed requests."""

    mean: float
    p99: float
    hit_ratio: float
    failed: int


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of this part."""
    plain = ",".join(f"{term}={seconds}" for term, seconds in TERMS)
    slow = ",".join(f"{term}={seconds * SLOW}" for term, seconds in TERMS)
    fleets = {
        "round robin": ("RoundRobin", [plain] * REPLICAS),
        "prefix aware": ("PrefixAware", [plain] * REPLICAS),
        "one slow": ("PrefixAware", [plain] * (REPLICAS - 1) + [slow]),
        "without it": ("PrefixAware", [plain] * (REPLICAS - 1)),
    }
    found: dict[str, Measured] = {}
    for name, (policy, paces) in fleets.items():
        say(f"{REQUESTS} conversations at {RATE:g}/s: {name}")
        found[name] = asyncio.run(_run(policy, paces, out))
    turn, ours, skewed, without = found.values()
    words = f"{ours.mean * 1000:.0f} over {turn.mean * 1000:.0f} ms"
    hits = f"{ours.hit_ratio:.1%} over {turn.hit_ratio:.1%}"
    p99 = f"{skewed.p99 * 1000:.0f} over {without.p99 * 1000:.0f} ms"
    return Report(
        [
            at_most(f"mean TTFT over round robin's ({words})", ours.mean / turn.mean, MOST_TTFT, " ×"),
            at_least(f"hit ratio over round robin's ({hits})", ours.hit_ratio / turn.hit_ratio, LEAST_HITS, " ×"),
            at_most(
                f"p99 TTFT, one replica slowed, over without it ({p99})", skewed.p99 / without.p99, MOST_SKEW, " ×"
            ),
            at_most("failed requests of all four runs", float(sum(one.failed for one in found.values())), 0.0),
        ],
        {name: asdict(one) for name, one in found.items()},
    )


def prompts() -> list[str]:
    """The first prompts that fit, of conversations with two turns or more: texts are equal exactly where blocks are."""
    path = bundled("mooncake_conversation")
    if path is None:
        raise FileNotFoundError("mooncake_conversation")
    fitting = [one.blocks for one in read_trace(path) if 2 <= len(one.blocks) <= MOST_BLOCKS]
    turns = Counter(blocks[:2] for blocks in fitting)
    chosen = [blocks for blocks in fitting if turns[blocks[:2]] > 1]
    return ["".join(map(_text, blocks)) for blocks in chosen[:REQUESTS]]


def _text(block: int) -> str:
    draw = random.Random(block)
    words: list[str] = []
    while sum(map(len, words)) + len(words) < BLOCK_BYTES:
        words.append(draw.choice(_WORDS))
    return " ".join(words)[: BLOCK_BYTES - 1] + " "


async def _run(policy: str, paces: Sequence[str], out: Path) -> Measured:
    asked = prompts()
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(paced_engines(ensure(), paces, out))
        ours = await stack.enter_async_context(gateway(engines, "--policy", policy))
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_first_token(client, ours.urls[0], text, begun + number / RATE))
                for number, text in enumerate(asked)
            ]
        times = [task.result() for task in tasks]
        async with client.get(ours.urls[1] + contract.PATH_METRICS) as response:
            lines = dict(line.rsplit(" ", 1) for line in (await response.text()).splitlines() if line[:1] != "#")
    seen = [one for one in times if one is not None]
    share = float(lines[contract.GATEWAY_CACHED_TOKENS]) / float(lines[contract.GATEWAY_PROMPT_TOKENS])
    return Measured(statistics.mean(seen), percentile(seen, 0.99), share, len(times) - len(seen))


async def _first_token(client: aiohttp.ClientSession, url: str, text: str, due: float) -> float | None:
    """Seconds from when the request was due to its first token; None if it failed."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    body = {"model": "tiny", "prompt": text, "stream": True, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    try:
        async with client.post(url + contract.PATH_COMPLETIONS, json=body) as response:
            first = await response.content.readany()
            taken = time.perf_counter() - due
            whole = (first + await response.read()).endswith(b"data: [DONE]\n\n")
    except aiohttp.ClientError:
        return None
    return taken if response.status == 200 and whole else None
