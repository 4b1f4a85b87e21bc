"""The summary of the demo: figures, decisions as sentences, and the verdict."""

import os
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from e2e.demo.checks import Check
from e2e.demo.fleet import Fleet
from e2e.demo.processor import Share
from e2e.demo.story import Record
from sluice.bench import Percentiles, Report

MOST_CORES = 1 / 3  # highest CPU usage of an engine, so that sequences and KV bind and not this machine


def closing_checks(record: Record, fleet: Fleet, code: int) -> list[Check]:
    """The checks that are possible only at the end."""
    failed = {name: report.failed for name, report in record.reports.items()}
    left = [pid for pid in sorted(fleet.pids) if _alive(pid)]
    busiest = max((share.cores for share in record.shares.values()), default=1.0)
    return [
        Check("no request failed", bool(failed) and not any(failed.values()), f"failed: {failed}"),
        Check("each engine takes under a third of a core", busiest < MOST_CORES, f"at most {busiest:.2f} cores"),
        Check("Ctrl-C ends it with 0 and leaves no process", code == 0 and not left, f"code {code}, left {left}"),
    ]


def print_summary(console: Console, record: Record, fleet: Fleet, verdict: Iterable[Check]) -> None:
    """Print the figures, decisions and checks."""
    console.rule("Summary")
    console.print(_loads(record.reports))
    console.print(_engines(record.shares))
    console.print("[bold]Decisions[/bold]")
    for made in fleet.timeline.decisions():
        console.print(f"  {made['time'][11:19]}  {made['dial']:<9} {made['message']}", highlight=False)
    console.print("\n[bold]Checks[/bold]")
    for check in verdict:
        word = "[green]PASS[/green]" if check.passed else "[red]FAIL[/red]"
        console.print(f"  {word}  {check.what}  [dim]({check.numbers})[/dim]", highlight=False)


def print_failure(console: Console, fleet: Fleet, logs: Path) -> None:
    """Print the output and logs that help to find a failure."""
    console.rule("What was said")
    for line in fleet.noise[-20:]:
        console.print(line, markup=False)
    for seen in fleet.timeline.events[-20:]:
        console.print(str(seen.line), markup=False)
    for log in sorted(logs.glob("*.log")):
        console.print(f"[bold]{log.name}[/bold]")
        for line in log.read_text("utf-8", "replace").splitlines()[-15:]:
            console.print(f"  {line}", markup=False)


def _loads(reports: dict[str, Report]) -> Table:
    table = Table(title="Requests", title_justify="left")
    for name in (
        "load",
        "requests",
        "failed",
        "healed refusals",
        "tokens/s",
        "TTFT p50/p95/p99 ms",
        "ITL p50/p95/p99 ms",
    ):
        table.add_column(name, justify="left" if name == "load" else "right")
    for name, report in reports.items():
        table.add_row(
            name,
            str(report.requests),
            str(report.failed),
            str(report.refused_then_healed),
            f"{report.tokens_per_second:.0f}",
            _three(report.ttft_ms),
            _three(report.itl_ms),
        )
    return table


def _engines(shares: dict[str, Share]) -> Table:
    table = Table(title="Processor", title_justify="left")
    table.add_column("engine")
    table.add_column("mean cores while ready", justify="right")
    for name, share in shares.items():
        table.add_row(name, f"{share.cores:.2f}")
    return table


def _three(values: Percentiles) -> str:
    return " / ".join("–" if value is None else f"{value:.0f}" for value in (values.p50, values.p95, values.p99))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number now belongs to a process of another user
    return True
