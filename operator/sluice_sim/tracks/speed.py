"""`python -m sluice_sim.tracks.speed`: how much faster than real time does exact mode go, on one core?

Ten replicas that nobody moves, at T2's load and at one request per second and replica. With our law the number of
replicas differs and decide() runs beside them: `tracks.agreement` shows that for three hours.
"""

from dataclasses import dataclass, replace
from typing import Final

import typer
from rich.console import Console
from rich.table import Table

from sluice_sim.tracks.job import STATIC, Job, Outcome, simulate
from sluice_sim.tracks.requests import requests
from sluice_sim.tracks.track import Track, Window, read_track

REPLICAS: Final = 10


@dataclass(frozen=True, slots=True)
class Case:
    """T2's load, a part of it, and the speed that is asked for, in times real time."""

    words: str
    scale: float  # of Azure's trace; it has 5 requests per second
    window: Window
    least: float

    def track(self) -> Track:
        """T2 with that load, and with that piece of it as its test window."""
        track = read_track("T2")
        return replace(track, load=replace(track.load, scale=self.scale), windows=(("test", self.window),))


CASES: Final = (
    Case("T2's load", 8.0, Window(600.0, 300.0), 20.0),
    Case("1 request/s per replica", 1.8, Window(600.0, 600.0), 100.0),
)


def run(case: Case) -> Outcome:
    """Simulate it, the reading of the trace left out of its processor time."""
    track = case.track()
    requests(track, "test")
    return simulate(track, Job(track="T2", window="test", law=STATIC, setting=REPLICAS, mode="exact"))


def main() -> None:
    """Measure both, one after the other."""
    table = Table("load", "requests/s", "seconds", "of processor", "× real time", "asked for")
    for case in CASES:
        found = run(case)
        table.add_row(
            f"{case.words}, {REPLICAS} replicas",
            f"{found.requests / case.window.seconds:.1f}",
            f"{found.seconds:.0f}",
            f"{found.cpu_seconds:.1f}",
            f"{found.seconds / found.cpu_seconds:.0f}",
            f"{case.least:.0f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
