"""Runs parts of the bench one after another; shows one table, writes one JSON. A part that cannot be measured is a
failed row, and the others go on."""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench import processor
from tests.bench.row import Report, Row

Say = Callable[[str], None]
FILE_WIDTH = 160  # characters, where the table goes to no terminal
COLOURS: Mapping[str, str] = {"met": "green", "recorded": "dim", "NOT MET": "red", "FAILED": "bold red"}


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement: a name to choose it by, and what measures it, given a folder for plots and logs."""

    name: str
    measure: Callable[[Path, Say], Report]


def run(parts: Sequence[Part], out: Path, to: Path) -> int:
    """0 if every row is good, else 1. A SIGTERM ends what parts have started before it ends this process."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    out.mkdir(parents=True, exist_ok=True)
    where = processor.describe()
    progress = Console(stderr=True)
    reports: dict[str, Report] = {}
    seconds: dict[str, float] = {}
    try:
        with progress.status("") as status:
            for part in parts:
                begun = time.monotonic()
                reports[part.name] = _measured(part, out, _say(part.name, progress, status.update))
                seconds[part.name] = round(time.monotonic() - begun, 1)
    finally:
        signal.signal(signal.SIGTERM, before)
    found = {
        "processor": asdict(where),
        "good": all(row.good for report in reports.values() for row in report.rows),
        "parts": {name: _json(report) | {"took_seconds": seconds[name]} for name, report in reports.items()},
    }
    to.write_text(json.dumps(found, indent=2) + "\n")
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    console.print(table(where, reports))
    for report in reports.values():
        for plot in report.plots:
            console.print(f"plot: {plot}", highlight=False)
    console.print(f"all numbers: {to}", highlight=False)
    return 0 if found["good"] else 1


def table(where: processor.Processor, reports: Mapping[str, Report]) -> Table:
    """Every row of every part, under the processor's name."""
    shown = Table(
        title=escape(f"{where.name}, {', '.join(where.flags)}, {where.cores} cores, load {where.load_average:g} before")
    )
    shown.add_column("part", style="cyan")
    shown.add_column("what")
    shown.add_column("measured")
    shown.add_column("bar")
    shown.add_column("")
    for name, report in reports.items():
        for number, row in enumerate(report.rows):
            shown.add_row(
                name if number == 0 else "",
                escape(row.name),
                escape(row.failed or row.value),
                escape(row.bar),
                f"[{COLOURS[row.verdict]}]{row.verdict}",
            )
        shown.add_section()
    return shown


def _measured(part: Part, out: Path, say: Say) -> Report:
    try:
        return part.measure(out, say)
    except Exception as error:  # noqa: BLE001 - whatever stops one part is its failed row; the other parts go on
        return Report([Row(part.name, failed=f"{type(error).__name__}: {error}".splitlines()[0])])


def _say(part: str, console: Console, update: Callable[[str], None]) -> Say:
    def say(text: str) -> None:
        if console.is_terminal:
            update(f"{part}: {text}")
        else:
            console.print(json.dumps({"part": part, "event": text}), markup=False, highlight=False, soft_wrap=True)

    return say


def _json(report: Report) -> dict[str, object]:
    return {
        "rows": [asdict(row) | {"verdict": row.verdict} for row in report.rows],
        "data": dict(report.data),
        "plots": [str(plot) for plot in report.plots],
    }
