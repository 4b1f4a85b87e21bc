"""The acceptance tables: their rows as copied from the design, and which tests show each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

DATA: Final = Path(__file__).parent / "data/acceptance"
TABLES: Final = ("resource", "faults")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table. `tests` are node ids of pytest without parameters."""

    table: str
    case: str
    tests: tuple[str, ...]
    missing: str  # the part that no test shows; empty: none


def copied_cases(table: str) -> list[str]:
    """The first column of a table as the design has it, without its heading."""
    lines = (DATA / f"{table}.md").read_text().splitlines()
    cells = [line.strip("|").split("|")[0].strip() for line in lines if line.startswith("|")]
    return [cell for cell in cells[1:] if not re.fullmatch(r"-+", cell)]


def rows() -> list[Row]:
    """All rows, in the order of the tables."""
    found = yaml.safe_load((DATA / "tests.yaml").read_text())
    return [
        Row(table, case, tuple(entry["tests"]), entry.get("missing", ""))
        for table in TABLES
        for case, entry in found[table].items()
    ]


def table_of(seconds: Mapping[str, float], failed: frozenset[str]) -> str:
    """The rows as text: the duration of their tests in this run, what other runs show, and what is missing.

    `seconds` has the duration of each test that ran, by its node id.
    """
    lines = []
    for row in rows():
        ran = [test for test in row.tests if test in seconds]
        if ran:
            verdict = "FAILED" if failed.intersection(ran) else "ok"
            result = f"{verdict} {sum(seconds[test] for test in ran):.0f} s"
        else:
            result = "elsewhere" if row.tests else "none"
        others = len(row.tests) - len(ran)
        more = f"; {others} tests of other runs" if others and ran else ""
        rest = f"; missing: {row.missing}" if row.missing else ""
        lines.append(f"{row.table:<8}  {result:<12}  {row.case[:70]}{more}{rest}")
        lines += [f"{'':<24}{seconds[test]:6.0f} s  {test}" for test in ran]
    return "\n".join(lines)
