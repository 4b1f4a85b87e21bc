"""Runs parts of the benchmark one after another; shows one table, writes one JSON.

A part that cannot be measured is a failed row, and the others continue. A stored JSON is shown with a mark on each part
that other code measured.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sluice_sim.benchmark.run.provenance import MARK, footnote
from tests.bench.report import measured_code, processor
from tests.bench.report.row import Report, Row

Say = Callable[[str], None]
FILE_WIDTH = 160  # characters, if the output is no terminal
COLOURS: Mapping[str, str] = {"met": "green", "recorded": "dim", "NOT MET": "red", "FAILED": "bold red"}


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement: its name, and the function that measures it, given a folder for plots and logs."""

    name: str
    measure: Callable[[Path, Say], Report]


def run(parts: Sequence[Part], out: Path, to: Path) -> int:
    """Run the parts. Returns 0 if every row is good, else 1. A SIGTERM ends the parts' processes before this one.

    The JSON is written after each part, so that it has those that were measured before an interruption.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    out.mkdir(parents=True, exist_ok=True)
    where, measured_by = processor.describe(), measured_code.describe()
    progress = Console(stderr=True)
    reports: dict[str, Report] = {}
    seconds: dict[str, float] = {}
    try:
        with progress.status("") as status:
            for part in parts:
                begun = time.monotonic()
                reports[part.name] = _measured(part, out, _say(part.name, progress, status.update))
                seconds[part.name] = round(time.monotonic() - begun, 1)
                _write(to, where, measured_by, reports, seconds)
    finally:
        signal.signal(signal.SIGTERM, before)
    console = Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
    console.print(table(where, reports, measured_by))
    for report in reports.values():
        for plot in report.plots:
            console.print(f"plot: {plot}", highlight=False)
    console.print(f"all numbers: {to}", highlight=False)
    return 0 if _are_good(reports) else 1


def _are_good(reports: Mapping[str, Report]) -> bool:
    return all(row.good for report in reports.values() for row in report.rows)


def _write(
    to: Path,
    where: processor.Processor,
    measured_by: measured_code.Code,
    reports: Mapping[str, Report],
    seconds: Mapping[str, float],
) -> None:
    found = {
        "processor": asdict(where),
        "code": asdict(measured_by),
        "good": _are_good(reports),
        "parts": {name: _json(report) | {"took_seconds": seconds[name]} for name, report in reports.items()},
    }
    to.write_text(json.dumps(found, indent=2) + "\n")


def stored(path: Path, now: measured_code.Code) -> Table:
    """The table of a JSON that `run` wrote, marked if other code than `now` measured it.

    Raises OSError and ValueError.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    where = processor.Processor(**found["processor"])
    measured_by = measured_code.Code(**found.get("code", {"digest": "unknown", "commit": None}))
    mark = "" if measured_by.digest == now.digest else MARK
    names = [field.name for field in fields(Row)]
    parts = {
        f"{name}{mark}": Report([Row(**{field: row[field] for field in names}) for row in part["rows"]])
        for name, part in found["parts"].items()
    }
    shown = table(where, parts, measured_by)
    shown.caption = "\n".join(footnote([measured_by.digest] if mark else [])) or None
    return shown


def table(where: processor.Processor, reports: Mapping[str, Report], measured_by: measured_code.Code) -> Table:
    """Every row of every part, under the names of the processor and the code."""
    flags = ", ".join(where.flags)
    machine = f"{where.name}, {flags}, {where.cores} cores, load {where.load_average:g} before"
    shown = Table(title=escape(f"{machine}; {measured_by.short}"))
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
    except Exception as error:  # noqa: BLE001 - any error of one part is its failed row; the other parts continue
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
