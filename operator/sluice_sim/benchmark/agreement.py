"""`python -m sluice_sim.benchmark.agreement` compares the simulator's exact and coarse modes on three hours of load.

The long tracks are scored in coarse mode, so their scores depend on its agreement with exact mode, which steps the real
scheduler. Arrivals, law and conditions are the same in both modes; attainment and GPU-hours must agree within 5 %. Each
run is stored when it ends, under a digest of the code behind it, and is not run again.
"""

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from sluice_sim.benchmark.run.job import Job, Outcome, simulate
from sluice_sim.benchmark.run.provenance import MARK, OTHER_CODE, footnote, other_digests
from sluice_sim.benchmark.run.runner import worker_pool
from sluice_sim.benchmark.run.store import RESULTS, Store, key_of
from sluice_sim.benchmark.track import Track, Window, read_track
from sluice_sim.cluster.scenario import Mode

MOST: Final = 0.05  # relative difference
LAW: Final = "sluice"
MODES: Final[tuple[Mode, ...]] = ("exact", "coarse")


@dataclass(frozen=True, slots=True)
class Hour:
    """A part of a track's load, at most one hour long. Times are in seconds of the trace."""

    track: str
    start: float
    seconds: float

    def __str__(self) -> str:
        """The hour as text."""
        return f"{self.track} from {self.start:,.0f} s"

    def narrowed(self) -> Track:
        """The track with this part as its test window."""
        return replace(read_track(self.track), windows=(("test", Window(self.start, self.seconds)),))


# T1: one early evening. T2: all bursts of the Azure trace. T3: all long shared prompts of the Mooncake trace.
HOURS: Final = (Hour("T1", 151_200, 3_600), Hour("T2", 0, 3_502), Hour("T3", 0, 3_537))


@dataclass(frozen=True, slots=True)
class Pair:
    """The outcomes of one hour in exact and in coarse mode."""

    hour: Hour
    exact: Outcome
    coarse: Outcome
    other_code: frozenset[str] = frozenset()  # digests of any other code that measured these outcomes

    @property
    def attainment_off(self) -> float:
        """Relative error of the coarse attainment: coarse / exact - 1."""
        return self.coarse.attainment / self.exact.attainment - 1.0

    @property
    def hours_off(self) -> float:
        """Relative error of the coarse GPU-hours: coarse / exact - 1."""
        return self.coarse.gpu_hours / self.exact.gpu_hours - 1.0

    @property
    def agree(self) -> bool:
        """True if both errors are at most MOST."""
        return max(abs(self.attainment_off), abs(self.hours_off)) <= MOST


def job(hour: Hour, mode: Mode) -> Job:
    """The job that simulates the hour in one mode."""
    return Job(track=hour.track, window="test", law=LAW, mode=mode)


def run(hour: Hour, mode: Mode) -> Outcome:
    """Simulate the hour in one mode."""
    return simulate(hour.narrowed(), job(hour, mode))


def compare(
    hours: Sequence[Hour], store: Store, workers: int = 2, say: Callable[[str], None] = lambda _: None
) -> list[Pair]:
    """Compare both modes on all hours, with `workers` processes, exact mode first. Stored runs are not repeated."""
    asked = {key_of(hour.narrowed(), job(hour, mode)): (hour, mode) for mode in MODES for hour in hours}
    with worker_pool(workers) as pool:
        running = {pool.submit(run, *one): key for key, one in asked.items() if key not in store}
        for done in as_completed(running):
            hour, mode = asked[running[done]]
            store.put(running[done], f"{hour}, {mode}", done.result().to_dict())
            say(f"{hour}, {mode}: {done.result().cpu_seconds:.0f} s of processor time")
    found = {one: store[key] for key, one in asked.items()}
    return [_pair(hour, found[hour, "exact"], found[hour, "coarse"]) for hour in hours]


def _pair(hour: Hour, *found: dict[str, Any]) -> Pair:
    exact, coarse = (Outcome(**{name: one[name] for name in one if name != OTHER_CODE}) for one in found)
    return Pair(hour, exact, coarse, frozenset(other_digests(found)))


def shown(pairs: Sequence[Pair]) -> Table:
    """A table with one row per hour."""
    table = Table(
        "hour",
        "requests",
        "attainment, exact",
        "coarse",
        "off",
        "GPU-hours, exact",
        "coarse",
        "off",
        "× real time, exact",
        "coarse",
        caption="\n".join(footnote(code for pair in pairs for code in pair.other_code)) or None,
    )
    for pair in pairs:
        exact, coarse = pair.exact, pair.coarse
        table.add_row(
            f"{pair.hour}{MARK if pair.other_code else ''}",
            f"{exact.requests:,}",
            f"{exact.attainment:.2%}",
            f"{coarse.attainment:.2%}",
            f"{pair.attainment_off:+.2%}",
            f"{exact.gpu_hours:.2f}",
            f"{coarse.gpu_hours:.2f}",
            f"{pair.hours_off:+.2%}",
            *(f"{one.seconds / one.cpu_seconds:.0f}" for one in (exact, coarse)),
        )
    return table


def as_json(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The JSON content of agreement.json."""
    return {
        "command": "python -m sluice_sim.benchmark.agreement",
        "law": LAW,
        "most": MOST,
        "hours": [
            {
                "track": pair.hour.track,
                "start": pair.hour.start,
                "seconds": pair.hour.seconds,
                "attainment_off": round(pair.attainment_off, 6),
                "gpu_hours_off": round(pair.hours_off, 6),
                "measured_by_other_code": sorted(pair.other_code),
                "exact": pair.exact.to_dict(),
                "coarse": pair.coarse.to_dict(),
            }
            for pair in pairs
        ],
    }


def main(
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    out: Annotated[Path, typer.Option(help="Where agreement.json and the store are.")] = RESULTS,
) -> None:
    """Compare the two modes; the exit code is 1 if they disagree."""
    progress = Console(stderr=True)
    store = Store(out / "agreement.jsonl")
    pairs = compare(HOURS, store, workers, lambda text: progress.print(text, highlight=False))
    store.keep(key_of(hour.narrowed(), job(hour, mode)) for hour in HOURS for mode in MODES)
    Console(width=150).print(shown(pairs))
    (out / "agreement.json").write_text(json.dumps(as_json(pairs), indent=1) + "\n", encoding="utf-8")
    if not all(pair.agree for pair in pairs):
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
