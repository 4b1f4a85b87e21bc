"""Panels and dashboards as data. `grafana.py` writes them as Grafana's JSON."""

from dataclasses import dataclass
from typing import Final, Literal

from sluice import contract
from sluice.monitoring.promql import Scope

# Rates follow the panel's resolution. The variables are those of every dashboard.
SELECTED: Final = Scope(f'namespace=~"$namespace",{contract.SERIES_LABEL}=~"$llmdeployment"', "$__rate_interval")
EVERYTHING: Final = Scope("", "$__rate_interval")


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; `legend` names labels as {{label}}."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `unit` is Grafana's: s, short, reqps, percentunit, ...; `stacked` areas add up."""

    title: str
    text: str  # what it shows and what to do about it, in a sentence or two
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat"] = "timeseries"
    stacked: bool = False
    width: int = 8  # of 24 columns
    from_zero: bool = True  # False: the axis fits the data, so that 99 % and 100 % differ
    good_from: float | None = None  # a stat is green from this value on, else red


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. `uid` is part of its URL and must never change."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in the order of the rows."""
        return tuple(panel for row in self.rows for panel in row.panels)
