"""Gain of batching over HTTP: 64 concurrent requests against one, with the same model, server and client, in one run.

The two sides are interleaved, so that a slow minute of the machine affects both. The medians over the rounds are
compared.
"""

import asyncio
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sluice.bench import BenchError, Load, Prompt, Report, run
from sluice_engine import tiny
from sluice_engine.tiny import corpus
from tests.bench.processes.server import ServerFailed, served
from tests.bench.report.row import Report as Found
from tests.bench.report.row import Row as Line
from tests.bench.report.row import at_least

LEAST_RATIO = 3.0
THREADS = 1  # of torch; the HTTP process and the client use the other core, and a second thread would compete with them
CONCURRENCY = 64
ROUNDS = 5
SECONDS = 5.0  # sending time of one side per round; requests in flight then finish and count
WARM_UP_SECONDS = 2.0
ATTEMPT_SECONDS = 60.0


@dataclass(slots=True)
class Row:
    """One side of the comparison, over all rounds. A side with a failed request is a failed row without a number."""

    name: str
    concurrency: int
    reports: list[Report] = field(default_factory=list)
    error: str | None = None

    @property
    def failed(self) -> bool:
        """True if its numbers must not be used."""
        return self.error is not None or not self.reports or any(not report.ok for report in self.reports)

    def why(self) -> str:
        """The failure, in one line."""
        sentences = [self.error] if self.error else [said for report in self.reports for said in report.first_failures]
        return sentences[0] if sentences else "nothing was measured"

    def median(self, of: Callable[[Report], float | None]) -> float:
        """Median over the rounds that have the value; NaN if none has."""
        values = [value for report in self.reports if (value := of(report)) is not None]
        return statistics.median(values) if values else math.nan

    @property
    def tokens_per_second(self) -> float:
        """Median output tokens per second."""
        return self.median(lambda report: report.tokens_per_second)


def ratio(batched: Row, single: Row) -> float | None:
    """Tokens per second, batched over single; None if either row failed."""
    if batched.failed or single.failed:
        return None
    return batched.tokens_per_second / single.tokens_per_second


def report(out: Path, say: Callable[[str], None]) -> Found:
    """Both rows and their ratio."""
    say("the tiny model (about a minute the first time)")
    both = asyncio.run(measure(tiny.ensure(), out / "bench-serve.log", say))
    data = {
        row.name: {"failed": row.failed, "error": row.error, "rounds": [each.to_dict() for each in row.reports]}
        for row in both
    }
    bar = at_least(f"{CONCURRENCY} at a time / one at a time", ratio(*both), LEAST_RATIO, " ×")
    return Found([*(_line(row) for row in both), bar], data)


def _line(row: Row) -> Line:
    name = f"tiny model over HTTP, {row.name}, {THREADS} thread"
    if row.failed:
        return Line(name, failed=row.why())
    first, between = row.median(lambda each: each.ttft_ms.p50), row.median(lambda each: each.itl_ms.p50)
    return Line(name, f"{row.tokens_per_second:,.0f} tokens/s, TTFT p50 {first:.1f} ms, ITL p50 {between:.1f} ms")


async def measure(model: Path, log: Path, say: Callable[[str], None]) -> tuple[Row, Row]:
    """Both rows; every output is compared with the model's own."""
    batched = Row(f"{CONCURRENCY} at a time", CONCURRENCY)
    single = Row("one at a time", 1)
    try:
        async with served(model, THREADS, CONCURRENCY, log) as url:
            for row in (batched, single):
                say(f"warming up, {row.name}")
                await _once(url, row.concurrency, WARM_UP_SECONDS, seed=1000)
            for turn in range(ROUNDS):
                for row in (batched, single):
                    say(f"round {turn + 1} of {ROUNDS}, {row.name}")
                    row.reports.append(await _once(url, row.concurrency, SECONDS, seed=turn))
    except (ServerFailed, BenchError) as failure:
        batched.error = single.error = str(failure)
    return batched, single


async def _once(url: str, concurrency: int, seconds: float, seed: int) -> Report:
    prompts = tuple(Prompt(pair.question, pair.answer) for pair in corpus.load())
    load = Load(url=url, prompts=prompts, concurrency=concurrency, duration=seconds, seed=seed, timeout=ATTEMPT_SECONDS)
    return await run(load)
