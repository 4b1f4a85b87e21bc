"""The comparison as a bar chart: tokens per second of each side, with a dot for every round."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from tests.bench.report import figure
from tests.bench.throughput.compare import Outcome

LABEL = 20  # characters per line of a bar's label, so that five bars fit side by side


def draw(outcomes: Sequence[Outcome], load: str, dtype: str, to: Path) -> Path:
    """One bar for each side that has a number."""
    measured = [o for o in outcomes if o.tokens_per_second is not None]
    with figure.drawing(f"Throughput, {load}, {dtype}", to) as axes:
        names = [f"{textwrap.fill(o.side.title, LABEL)}\n{o.tokens_per_second:,.0f}" for o in measured]
        colours = [figure.OURS if o.side.name == "ours" else figure.PEER for o in measured]
        axes.bar(names, [o.tokens_per_second or 0.0 for o in measured], color=colours, width=0.6)
        for place, outcome in enumerate(measured):
            if not outcome.split:
                axes.plot([place] * len(outcome.rates), outcome.rates, "o", color=figure.DOT, markersize=4)
        axes.set_ylabel("output tokens/s (median; dots: rounds)")
        axes.set_ylim(bottom=0)
    return to
