"""One line of the benchmark's table, the same for every measurement: result, bar, and verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """A measured result. Without a bar it is only recorded; with `failed` it has no number and the benchmark fails."""

    name: str
    value: str = ""  # with its unit
    bar: str = ""  # the bound to meet; empty: recorded only
    met: bool | None = None  # None without a bar
    failed: str | None = None  # the failure, in one line

    @property
    def good(self) -> bool:
        """True if the benchmark may still exit with 0."""
        return self.failed is None and self.met is not False

    @property
    def verdict(self) -> str:
        """The verdict in the table and the JSON."""
        if self.failed is not None:
            return "FAILED"
        return "recorded" if self.met is None else "met" if self.met else "NOT MET"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one measurement: rows for the table, data for the JSON, and the plots."""

    rows: Sequence[Row]
    data: Mapping[str, object] = field(default_factory=dict)
    plots: Sequence[Path] = ()


def at_least(name: str, measured: float | None, least: float, unit: str = "") -> Row:
    """A row that must reach `least`; failed if there is no number."""
    return _bar(name, measured, least, "≥", unit, met=measured is not None and measured >= least)


def at_most(name: str, measured: float | None, most: float, unit: str = "") -> Row:
    """A row that must not exceed `most`; failed if there is no number."""
    return _bar(name, measured, most, "≤", unit, met=measured is not None and measured <= most)


def _bar(name: str, measured: float | None, bound: float, sign: str, unit: str, *, met: bool) -> Row:
    bar = f"{sign} {bound:.4g}{unit}"
    if measured is None:
        return Row(name, bar=bar, failed="there is no number to compare: a side of it failed")
    return Row(name, f"{measured:.3g}{unit}", bar, met)
