"""`make bench`: measures what the engine must reach on this machine, prints a table, writes .out/bench.json.

Exit code 0 only if every bar is met; a side that failed a single request is a failed row, never a number.
"""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sluice_engine import tiny
from tests.bench import batching, kv_waste, processor

OUT = Path(".out")


def main() -> int:
    """Measure, show, write; the exit code."""
    OUT.mkdir(exist_ok=True)
    where = processor.describe()
    progress = Console(stderr=True)
    with progress.status("the tiny model (about a minute the first time)") as status:

        def say(text: str) -> None:
            status.update(text)
            if not progress.is_terminal:
                progress.print(json.dumps({"event": text}), markup=False, highlight=False)

        model = tiny.ensure()
        rows = asyncio.run(batching.measure(model, OUT / "bench-serve.log", say))
        say("KV waste")
        waste = kv_waste.measure()
    ratio = batching.ratio(*rows)
    bars = {
        f"batching: {batching.LEAST_RATIO:g} times the tokens/s or more": ratio is not None
        and ratio >= batching.LEAST_RATIO,
        f"KV waste on real lengths: under {kv_waste.MOST_PERCENT:g} %": waste.percent < kv_waste.MOST_PERCENT,
        "KV waste: under one block per sequence": waste.worst_places < kv_waste.BLOCK_SIZE,
    }
    found = {
        "processor": asdict(where),
        "threads": batching.THREADS,
        "ratio": ratio,
        "kv_waste": {**asdict(waste), "percent": waste.percent},
        "bars": bars,
        "batching": {
            row.name: {"failed": row.failed, "error": row.error, "rounds": [report.to_dict() for report in row.reports]}
            for row in rows
        },
    }
    (OUT / "bench.json").write_text(json.dumps(found, indent=2) + "\n")
    console = Console()
    console.print(_measured(where, rows, ratio))
    console.print(_judged(bars, waste))
    return 0 if all(bars.values()) else 1


def _measured(where: processor.Processor, rows: tuple[batching.Row, ...], ratio: float | None) -> Table:
    table = Table(title=escape(f"{where.name}, {', '.join(where.flags)}, {batching.THREADS} threads; medians"))
    table.add_column("tiny model", style="cyan")
    for heading in ("tokens/s", "each round", "TTFT p50, p99 ms", "ITL p50, p99 ms", "requests", "failed"):
        table.add_column(heading, justify="right")
    for row in rows:
        if row.failed:
            table.add_row(row.name, f"[red]failed: {escape(row.why())}")
            continue
        table.add_row(
            row.name,
            f"{row.tokens_per_second:,.0f}",
            " ".join(f"{report.tokens_per_second:,.0f}" for report in row.reports),
            f"{row.median(lambda report: report.ttft_ms.p50):.1f}, {row.median(lambda report: report.ttft_ms.p99):.1f}",
            f"{row.median(lambda report: report.itl_ms.p50):.1f}, {row.median(lambda report: report.itl_ms.p99):.1f}",
            f"{sum(report.requests for report in row.reports)}",
            "0",
        )
    table.caption = "no ratio: a row failed" if ratio is None else f"ratio {ratio:.2f}"
    return table


def _judged(bars: dict[str, bool], waste: kv_waste.Waste) -> Table:
    table = Table(title=f"KV waste {waste.percent:.2f} %, at most {waste.worst_places} places of one sequence")
    table.add_column("bar", style="cyan")
    table.add_column("met")
    for bar, met in bars.items():
        table.add_row(bar, "[green]yes" if met else "[red]no")
    return table


if __name__ == "__main__":
    sys.exit(main())
