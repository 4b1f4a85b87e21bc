"""`python -m sluice_sim.benchmark.speed [--long]` measures the simulator's speed on one core, in times real time.

Exact mode: ten constant replicas, at T2's load and at one request per second and replica. Under sluice the number of
replicas varies and decide() runs too: `benchmark.agreement` shows that speed for three hours. Coarse mode (`--long`,
about five minutes): T1's 48 hours under sluice, from the trace file to the figures.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from sluice_sim.benchmark.run.job import STATIC, Job, Outcome, simulate
from sluice_sim.benchmark.run.requests import requests
from sluice_sim.benchmark.track import Track, Window, read_track

REPLICAS: Final = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A simulation and its required speed, in multiples of real time."""

    words: str
    track: Track  # its test window is simulated
    job: Job
    least: float
    read: bool = False  # whether reading the trace counts towards the time


def exact(words: str, scale: float, window: Window, least: float) -> Case:
    """`scale` times the Azure trace, which has 5 requests per second."""
    track = read_track("T2")
    track = replace(track, load=replace(track.load, scale=scale), windows=(("test", window),))
    job = Job(track="T2", window="test", law=STATIC, setting=REPLICAS, mode="exact")
    return Case(f"{words}, {REPLICAS} replicas, exact", track, job, least)


def long() -> Case:
    """Both of T1's days in one run. The limit is five minutes."""
    hours = 48.0
    track = replace(read_track("T1"), windows=(("test", Window(0.0, hours * 3600.0)),))
    job = Job(track="T1", window="test", law="sluice", mode="coarse")
    return Case("48 hours of T1's load, our law, coarse", track, job, hours * 3600.0 / 300.0, read=True)


def run(case: Case) -> Outcome:
    """Simulate the case."""
    if not case.read:
        requests(case.track, "test")  # the trace is cached from now on
    return simulate(case.track, case.job)


def main(also_long: Annotated[bool, typer.Option("--long", help="The 48 hours as well.")] = False) -> None:
    """Measure the cases one after the other."""
    cases = [
        exact("T2's load", 8.0, Window(600.0, 300.0), 20.0),
        exact("1 request/s per replica", 1.8, Window(600.0, 600.0), 100.0),
        *([long()] if also_long else []),
    ]
    table = Table("load", "requests/s", "seconds", "CPU seconds", "× real time", "required")
    for case in cases:
        found = run(case)
        table.add_row(
            case.words,
            f"{found.requests / case.track.window('test').seconds:.1f}",
            f"{found.seconds:.0f}",
            f"{found.cpu_seconds:.1f}",
            f"{found.seconds / found.cpu_seconds:.0f}",
            f"{case.least:.0f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
