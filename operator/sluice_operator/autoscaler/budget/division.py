"""The division of one budget over many passes: made anew when what it depends on changes, else kept for some seconds.

A division of a budget among a thousand deployments takes tens of milliseconds, and each of them asks for it in each pass.
What decides most of it changes rarely: the counts, priorities and sizes. The predicted gains move with every scrape, so a
kept division is at most `budget_division_seconds` behind them. That no accelerator is granted twice does not depend on it:
`Budget.available` is of now.
"""

from collections.abc import Mapping
from typing import Final

from sluice_operator.autoscaler.budget.share import share
from sluice_operator.autoscaler.budget.values import Budget, Want
from sluice_operator.autoscaler.settings import LAW

EXACT: Final = 50  # up to so many deployments, each pass divides anew: that takes a millisecond or two

_Shape = tuple[int, int, int, int, int]


def shape(want: Want) -> _Shape:
    """What a want asks without its prediction."""
    return want.each, want.priority, want.least, want.count, want.current


class Division:
    """The newest division of one budget. Its owner notes each want that it records."""

    def __init__(self) -> None:
        self._shapes: dict[str, _Shape] = {}
        self._shared = 0
        self._at = 0.0
        self._shares: Mapping[str, int] = {}
        self._is_changed = False
        self.count = 0  # divisions so far

    def note(self, want: Want) -> None:
        """Record what a deployment wants from now on."""
        self._set(want.name, shape(want))

    def drop(self, name: str) -> None:
        """Record that a deployment wants nothing of this budget any more."""
        self._set(name, None)

    def shares(self, budget: Budget, own: Want) -> Mapping[str, int]:
        """Return the replicas per name, as `share` gives them now or gave them a moment ago."""
        self.note(own)
        is_due = budget.now - self._at >= LAW.budget_division_seconds or len(self._shapes) <= EXACT
        if not self._shares or is_due or self._is_changed or budget.shared != self._shared:
            self._shares = share(budget.shared, (*budget.others, own))
            self._at, self._shared, self._is_changed = budget.now, budget.shared, False
            self.count += 1
        return self._shares

    def _set(self, name: str, new: _Shape | None) -> None:
        if self._shapes.get(name) == new:
            return
        self._is_changed = True
        if new is None:
            self._shapes.pop(name, None)
        else:
            self._shapes[name] = new
