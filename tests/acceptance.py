"""The acceptance tables: their rows as copied from the design, and which tests show each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

DATA: Final = Path(__file__).parent / "data/acceptance"
TABLES: Final = ("resource", "faults", "http")
INGRESSES: Final = ("engine", "gateway")  # at each of which a row of bad input over HTTP holds
TEN_MINUTES: Final = "10 minutes"  # of a fault; e2e may have a shorter one
LASTED: Final = "lasted_seconds"  # property of a test: how long its fault lasted


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table. `tests` are node ids of pytest without parameters."""

    table: str
    case: str
    tests: tuple[str, ...]
    missing: str  # the part that no test shows; empty: none
    by_ingress: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the tests of each of INGRESSES


def copied_cases(table: str) -> list[str]:
    """The first column of a table as the design has it, without its heading."""
    lines = (DATA / f"{table}.md").read_text().splitlines()
    cells = [re.split(r"(?<!\\)\|", line.strip("|"))[0].strip() for line in lines if line.startswith("|")]
    return [cell for cell in cells[1:] if not re.fullmatch(r"-+", cell)]


def rows() -> list[Row]:
    """All rows, in the order of the tables."""
    found = yaml.safe_load((DATA / "tests.yaml").read_text())
    return [_row(table, case, entry) for table in TABLES for case, entry in found[table].items()]


def _row(table: str, case: str, entry: Mapping[str, Any]) -> Row:
    by_ingress = {name: tuple(entry[name]) for name in INGRESSES if name in entry}
    tests = entry["tests"] if not by_ingress else dict.fromkeys(test for each in by_ingress.values() for test in each)
    return Row(table, case, tuple(tests), entry.get("missing", ""), by_ingress)


def table_of(
    seconds: Mapping[str, float], failed: frozenset[str], lasted: Mapping[str, float] = MappingProxyType({})
) -> str:
    """The rows as text: the duration of their tests in this run, what other runs show, and what is missing.

    `seconds` has the duration of each test that ran, by its node id, `lasted` that of the fault in it, where it was measured:
    it is printed in place of the ten minutes of the design.
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
        case = row.case
        if measured := [lasted[test] for test in ran if test in lasted]:
            case = case.replace(TEN_MINUTES, f"{min(measured):.0f} s")
        lines.append(f"{row.table:<8}  {result:<12}  {case[:70]}{more}{rest}")
        lines += [f"{'':<24}{seconds[test]:6.0f} s  {test}" for test in ran]
    return "\n".join(lines)
