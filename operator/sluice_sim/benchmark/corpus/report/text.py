"""The report of the corpus: tables and verdicts as text, and all figures as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any, Final

from rich.console import Console

from sluice_sim.benchmark.corpus.figures import Figures, to_dict
from sluice_sim.benchmark.corpus.hindsight import Schedule
from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.corpus.report.bars import Verdict, verdicts
from sluice_sim.benchmark.corpus.report.score import score_of
from sluice_sim.benchmark.corpus.report.table import WIDTH, corpus_table, families_table
from sluice_sim.benchmark.run.provenance import footnote

NOTES: Final = """\
first part: the first 20 minutes, a fifth of a load shorter than 100 minutes; after: the rest.
over clairv.: GPU-hours over the cheapest schedule found that knows the load, an upper bound of the least cost.
over const.: GPU-hours over the cheapest constant count that reaches as much, or as any count does.
over peer: GPU-hours over the cheapest peer at its defaults that reaches as much.
regret: misses beyond those of the schedule that knows the load, begins with the fewest replicas and orders first at t = 0.
stock − ours: attainment of engines without Sluice (no load shedding, first come first served) less that of ours, at the
cheapest constant count that reaches 99 %.
"""


def report(results: Sequence[LoadResult], command: str) -> str:
    """The tables, notes and verdicts, as text."""
    kept = Console(width=WIDTH, record=True, file=StringIO())
    kept.print(f"{command}\n", highlight=False)
    kept.print(corpus_table(results))
    for line in (NOTES, *footnote(code for one in results for code in one.other_code), ""):
        kept.print(line, highlight=False, soft_wrap=True)
    kept.print(families_table(results))
    kept.print()
    for verdict in verdicts(results):
        kept.print(line_of(verdict), highlight=False, soft_wrap=True)
    return kept.export_text()


def line_of(verdict: Verdict) -> str:
    """A verdict as one line."""
    return f"{'met' if verdict.met else 'MISSED':<7} {verdict.sentence}"


def as_json(results: Sequence[LoadResult], command: str) -> dict[str, Any]:
    """All figures."""
    bars = {verdict.sentence: verdict.met for verdict in verdicts(results)}
    return {"command": command, "bars": bars, "loads": {one.load.name: _load(one) for one in results}}


def _load(result: LoadResult) -> dict[str, Any]:
    known = result.hindsight
    return {
        "family": result.load.family,
        "score": asdict(score_of(result)),
        "sluice": _figures(result.own),
        "peers": {name: _figures(found) for name, found in result.peers.items()},
        "constants": {count: _figures(found) for count, found in sorted(result.constants.items())},
        "stock": None if result.stock is None else {"count": result.stock[0]} | _figures(result.stock[1]),
        "clairvoyant": None if known is None else _schedule(known.clairvoyant),
        "from_fewest": None if known is None else _schedule(known.from_fewest),
    }


def _schedule(found: Schedule) -> dict[str, Any]:
    return {"counts": list(found.counts)} | _figures(found.figures)


def _figures(found: Figures) -> dict[str, Any]:
    value = to_dict(found)
    del value["missed"], value["cpu_seconds"]
    return value
