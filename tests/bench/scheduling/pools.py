"""Gain of predicted admission in a pool that is too small: preemptions compared with optimistic admission.

It runs in virtual time, on the lengths that the quantile was chosen on and on held-out lengths.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

from tests.bench.report import figure
from tests.bench.report.row import Report, Row, at_least, at_most
from tests.bench.scheduling.goodput import REQUESTS, fixed
from tests.bench.scheduling.virtual import HELD_OUT, TUNED_ON, Result, arrivals, run, step_model

RATE, CHUNK = 3.0, 2048  # requests per second, more than the pools can hold; tokens
LEAST_PREEMPTED = 10.0  # per cent of requests, by optimistic admission: otherwise the pool is not small
MOST_PREEMPTIONS = 1 / 5
SAME_THROUGHPUT = 3.0  # per cent
SETS = (
    ("chosen on", TUNED_ON, (1, 2, 3), 800),  # blocks of 16; the second half of the trace is shorter than its beginning
    ("held out", HELD_OUT, (4, 5, 6), 600),
    ("held out, again", HELD_OUT, (7, 8, 9), 600),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """The same requests under both admissions, one run for each seed."""

    name: str
    seeds: Sequence[int]
    blocks: int
    optimistic: Sequence[Result]
    predicted: Sequence[Result]

    @property
    def preempted_percent(self) -> float:
        """Share of requests that optimistic admission preempts at least once."""
        return 100 * sum(r.preempted for r in self.optimistic) / sum(r.requests for r in self.optimistic)

    @property
    def ratio(self) -> float:
        """Preemptions, predicted over optimistic."""
        return sum(r.preemptions for r in self.predicted) / sum(r.preemptions for r in self.optimistic)

    @property
    def throughput_change_percent(self) -> float:
        """Relative change of tokens per second from optimistic to predicted."""
        speeds = [mean(r.tokens_per_second for r in each) for each in (self.predicted, self.optimistic)]
        return 100 * (speeds[0] / speeds[1] - 1)


def compare(name: str, rows: slice, seeds: Sequence[int], blocks: int) -> Pair:
    """Run both admissions on lengths of these rows of the trace."""
    model = step_model()
    optimistic = replace(fixed(CHUNK), name="optimistic", blocks=blocks)
    predicted = replace(optimistic, name="predicted", predicted_admission=True)
    found = [
        [run(system, model, arrivals(REQUESTS, RATE, seed, rows)) for seed in seeds]
        for system in (optimistic, predicted)
    ]
    return Pair(name, seeds, blocks, *found)


def report(out: Path, say: Callable[[str], None]) -> Report:
    """Three bars for each set of lengths and seeds."""
    pairs: list[Pair] = []
    for name, rows, seeds, blocks in SETS:
        say(f"lengths {name}, seeds {seeds}")
        pairs.append(compare(name, rows, seeds, blocks))
    data = {
        pair.name: {
            "seeds": pair.seeds,
            "blocks": pair.blocks,
            "optimistic": [asdict(r) for r in pair.optimistic],
            "predicted": [asdict(r) for r in pair.predicted],
        }
        for pair in pairs
    }
    return Report([row for pair in pairs for row in _rows(pair)], data, [_draw(pairs, out / "admission.png")])


def _rows(pair: Pair) -> list[Row]:
    where = f"lengths {pair.name}"
    counts = [", ".join(str(r.preemptions) for r in each) for each in (pair.optimistic, pair.predicted)]
    return [
        Row(f"preemptions, {where}", f"optimistic {counts[0]}; predicted {counts[1]}"),
        at_least(f"requests preempted optimistically, {where}", pair.preempted_percent, LEAST_PREEMPTED, " %"),
        at_most(f"preemptions, predicted / optimistic, {where}", pair.ratio, MOST_PREEMPTIONS),
        at_most(f"throughput apart, {where}", abs(pair.throughput_change_percent), SAME_THROUGHPUT, " %"),
    ]


def _draw(pairs: Sequence[Pair], to: Path) -> Path:
    title = f"Preemptions in a pool that is too small, {RATE:g} requests/s, {REQUESTS} requests for each seed"
    with figure.drawing(title, to, on_processor=False) as axes:
        for place, pair in enumerate(pairs):
            sums = [sum(r.preemptions for r in each) for each in (pair.optimistic, pair.predicted)]
            bars = axes.bar([place - 0.2, place + 0.2], sums, width=0.38, color=[figure.PEER, figure.OURS])
            axes.bar_label(bars, fontsize=8)
        axes.set_xticks(
            range(len(pairs)),
            [f"lengths {p.name}, {p.blocks} blocks\nseeds {', '.join(map(str, p.seeds))}" for p in pairs],
        )
        axes.set_ylabel("preemptions (grey: optimistic, colour: predicted)")
    return to
