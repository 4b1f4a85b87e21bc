"""Figures and results made by hand, for tests of what is computed from them."""

from dataclasses import replace

from sluice_sim.benchmark.corpus.figures import Figures, Part
from sluice_sim.benchmark.corpus.hindsight import Hindsight, Schedule
from sluice_sim.benchmark.corpus.load import Load, read_loads
from sluice_sim.benchmark.corpus.plan import LoadResult

OFFERED = 10_000


def figures(attainment: float, gpu_hours: float, *, after: float | None = None, pieces: int = 10) -> Figures:
    """A run with this attainment, a fifth of it in the first part; `after`: the attainment of the rest."""
    rest = round(OFFERED * 0.8)
    missed = round(OFFERED * (1.0 - attainment))
    late = round(rest * (1.0 - (attainment if after is None else after)))
    return Figures(
        first=Part(OFFERED - rest, missed - late, 0.2 * gpu_hours),
        after=Part(rest, late, 0.8 * gpu_hours),
        worst=attainment,
        replicas_mean=gpu_hours,
        replicas_max=round(gpu_hours) + 1,
        kv_share_max=0.5,
        actions=10.0,
        cpu_seconds=0.0,
        missed=tuple(missed // pieces for _ in range(pieces)),
    )


def load(name: str = "conv-1", family: str | None = None) -> Load:
    """A load of the corpus, as one of another family if asked."""
    found = read_loads()[name]
    return found if family is None else replace(found, family=family)


def result(own: Figures, name: str = "conv-1", **changes: object) -> LoadResult:
    """A result whose constant fleets and schedules reach the target at 4 GPU-hours."""
    schedule = Schedule((2,) * 10, figures(0.99, 4.0), allowed=100)
    base = LoadResult(
        load=load(name),
        own=own,
        peers={"kpa": figures(0.90, 3.0), "hpa-running": figures(0.995, 8.0)},
        constants={1: figures(0.80, 2.0), 2: figures(0.99, 4.0), 3: figures(0.999, 6.0)},
        stock=(2, figures(0.98, 4.0)),
        hindsight=Hindsight(schedule, schedule),
    )
    return replace(base, **changes)  # type: ignore[arg-type]
