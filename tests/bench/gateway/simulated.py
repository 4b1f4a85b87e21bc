"""Track T3 by the gateway's own routing code: the share of an endless cache's hits that the fleet has under Sluice's law."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sluice_sim.benchmark.run.job import Job, simulate
from sluice_sim.benchmark.run.tasks import endless_hit_ratio
from sluice_sim.benchmark.track import read_track
from tests.bench.row import Report, at_least

LEAST: Final = 0.95


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The row of this part."""
    say("Mooncake's conversations in the simulator (T3)")
    track = read_track("T3")
    found = simulate(track, Job(track="T3", window="test", law="sluice"))
    share = found.hit_ratio / endless_hit_ratio(track, "test")
    name = f"T3: hits of an endless cache's (attainment {found.attainment:.2%}, {found.gpu_hours:.1f} GPU-hours)"
    return Report([at_least(name, share, LEAST)])
