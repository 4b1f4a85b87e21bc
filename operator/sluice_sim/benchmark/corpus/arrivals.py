"""The arrivals of a load. They depend on the load alone and are cached."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.data import FOLDER
from sluice_sim.traces import Arrival, Part, read_trace, scaled
from sluice_sim.traces.generators import generated


@lru_cache(maxsize=3)
def arrivals_of(load: Load) -> tuple[Arrival, ...]:
    """Arrivals in order of time, in [0, load.seconds). Raises OSError and BadTrace."""
    if load.streams:
        made = generated(load.streams, load.seconds, load.seed)
        return made if not load.trace else _with_lengths(made, load)
    lengths = _file(load.lengths) if load.lengths else None
    part = Part(load.start, load.seconds, None, lengths, load.seed)
    found = scaled(read_trace(_file(load.trace), part), load.scale, load.seed)
    return tuple(one for one in found if one.at < load.seconds)


def data_of(load: Load) -> list[Path]:
    """The bundled files that the load and its hardware are read from."""
    asked = tuple(f"{name}." for name in (load.trace, load.lengths) if name)
    return sorted(path for path in FOLDER.glob("*.gz") if path.name.startswith((*asked, "profile_")))


def _with_lengths(made: Sequence[Arrival], load: Load) -> tuple[Arrival, ...]:
    """The generated times with lengths drawn from a trace that has lengths only."""
    pool = read_trace(_file(load.trace), Part(seconds=100.0, rate=100.0, seed=load.seed))
    rng = random.Random(f"{load.seed}/pairs")
    drawn = [pool[rng.randrange(len(pool))] for _ in made]
    return tuple(replace(one, prompt=by.prompt, output=by.output) for one, by in zip(made, drawn, strict=True))


def _file(name: str) -> Path:
    return next(path for path in FOLDER.glob(f"{name}.*"))
