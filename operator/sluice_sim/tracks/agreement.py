"""`python -m sluice_sim.tracks.agreement`: do the simulator's two speeds tell the same story? Three hours, both ways.

Coarse mode is what the long tracks are scored with; what it says is worth as much as its agreement with the real
scheduler, stepped. Same arrivals, same law, same weather; attainment and GPU-hours must agree within 5 %. Each run is
stored as it ends, by a digest of the code behind it: what is known is not run again.
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

from sluice_sim.settings import Mode
from sluice_sim.tracks.job import Job, Outcome, simulate
from sluice_sim.tracks.runner import worker_pool
from sluice_sim.tracks.store import RESULTS, Store, key_of
from sluice_sim.tracks.track import Track, Window, read_track

MOST: Final = 0.05  # relative
LAW: Final = "sluice"
MODES: Final[tuple[Mode, ...]] = ("exact", "coarse")


@dataclass(frozen=True, slots=True)
class Hour:
    """A piece of a track's load, up to an hour of it. Seconds of the trace."""

    track: str
    start: float
    seconds: float

    def __str__(self) -> str:
        """In words."""
        return f"{self.track} from {self.start:,.0f} s"

    def narrowed(self) -> Track:
        """The track with this piece as its test window."""
        return replace(read_track(self.track), windows=(("test", Window(self.start, self.seconds)),))


# A day's early evening, all of Azure's bursts, all of Mooncake's long shared prompts.
HOURS: Final = (Hour("T1", 151_200, 3_600), Hour("T2", 0, 3_502), Hour("T3", 0, 3_537))


@dataclass(frozen=True, slots=True)
class Pair:
    """One hour, both ways."""

    hour: Hour
    exact: Outcome
    coarse: Outcome

    @property
    def attainment_off(self) -> float:
        """Coarse over exact, less one."""
        return self.coarse.attainment / self.exact.attainment - 1.0

    @property
    def hours_off(self) -> float:
        """GPU-hours, coarse over exact, less one."""
        return self.coarse.gpu_hours / self.exact.gpu_hours - 1.0

    @property
    def agree(self) -> bool:
        """Both within MOST."""
        return max(abs(self.attainment_off), abs(self.hours_off)) <= MOST


def job(hour: Hour, mode: Mode) -> Job:
    """One of the two."""
    return Job(track=hour.track, window="test", law=LAW, mode=mode)


def run(hour: Hour, mode: Mode) -> Outcome:
    """Simulate it."""
    return simulate(hour.narrowed(), job(hour, mode))


def compare(
    hours: Sequence[Hour], store: Store, workers: int = 2, say: Callable[[str], None] = lambda _: None
) -> list[Pair]:
    """All hours, `workers` at once, the slow mode's first. What the store has is not run."""
    asked = {key_of(hour.narrowed(), job(hour, mode)): (hour, mode) for mode in MODES for hour in hours}
    with worker_pool(workers) as pool:
        running = {pool.submit(run, *one): key for key, one in asked.items() if key not in store}
        for done in as_completed(running):
            hour, mode = asked[running[done]]
            store.put(running[done], f"{hour}, {mode}", done.result().to_dict())
            say(f"{hour}, {mode}: {done.result().cpu_seconds:.0f} s of processor time")
    found = {one: Outcome(**store[key]) for key, one in asked.items()}
    return [Pair(hour, found[hour, "exact"], found[hour, "coarse"]) for hour in hours]


def shown(pairs: Sequence[Pair]) -> Table:
    """A row for each hour."""
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
    )
    for pair in pairs:
        exact, coarse = pair.exact, pair.coarse
        table.add_row(
            str(pair.hour),
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
    """What is kept."""
    return {
        "command": "python -m sluice_sim.tracks.agreement",
        "law": LAW,
        "most": MOST,
        "hours": [
            {
                "track": pair.hour.track,
                "start": pair.hour.start,
                "seconds": pair.hour.seconds,
                "attainment_off": round(pair.attainment_off, 6),
                "gpu_hours_off": round(pair.hours_off, 6),
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
    """Compare; the exit code is 1 where they disagree."""
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
