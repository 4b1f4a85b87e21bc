"""What an alert is, as data: `rules.py` writes it for Prometheus, `runbook.py` for people."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `page` wakes a person, `ticket` waits for working hours."""

    name: str
    severity: Literal["page", "ticket"]
    expression: str
    lasting: str  # how long the expression must hold, e.g. 5m
    summary: str  # one line with the labels of the series, e.g. {{ $labels.pod }}
    meaning: str  # what is wrong for whom
    steps: tuple[str, ...]  # what to look at and what to do, in this order
