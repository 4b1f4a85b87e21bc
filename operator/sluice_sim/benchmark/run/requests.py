"""The requests of a track's window, with times from its start. They depend on the track alone and are cached."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from sluice_sim.benchmark.track import Load, Track, WindowName
from sluice_sim.data import FOLDER
from sluice_sim.traces import Arrival, Part, labelled, read_trace, scaled


@lru_cache(maxsize=4)
def requests(track: Track, name: WindowName) -> tuple[Arrival, ...]:
    """Arrivals in order of time. Raises OSError and BadTrace."""
    load, window = track.load, track.window(name)
    if load.ramp:
        return _ramp(track, f"{load.seed}/{window.start:g}", window.seconds)
    lengths = _file(load.lengths) if load.lengths else None
    part = Part(window.start, window.seconds, load.rate, lengths, load.seed)
    found = scaled(read_trace(_file(load.trace), part), load.scale, load.seed)
    found = tuple(one for one in found if one.at < window.seconds)
    if load.waves:
        found = _in_waves(found, load, window.seconds)
    if track.overload is not None:
        asked = track.overload
        found = labelled(found, asked.high, asked.priority, dict(asked.tenants), load.seed)
    return found


def _ramp(track: Track, seed: str, seconds: float) -> tuple[Arrival, ...]:
    """Poisson arrivals of equal requests; each segment of the ramp has its own rate."""
    rng, start = random.Random(f"{seed}/ramp"), 0.0
    found: list[Arrival] = []
    for rate, span in track.load.ramp:
        at = start
        while (at := at + rng.expovariate(rate)) < min(start + span, seconds):
            found.append(Arrival(at, track.load.prompt, track.load.output))
        start += span
    return tuple(found)


def _in_waves(found: Sequence[Arrival], load: Load, seconds: float) -> tuple[Arrival, ...]:
    """The arrivals thinned at random, each segment of the window with its own share."""
    rng, ends = random.Random(f"{load.seed}/waves"), list(accumulate(share * seconds for share, _ in load.waves))
    lets = [come for _, come in load.waves]
    return tuple(one for one in found if rng.random() < lets[min(bisect_right(ends, one.at), len(lets) - 1)])


def _file(name: str) -> Path:
    return next(path for path in FOLDER.glob(f"{name}.*"))
