"""A load of the corpus: arrivals, hardware, SLO targets and operating conditions. All loads are in loads.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.benchmark.track import Load as TrackLoad
from sluice_sim.benchmark.track import Track, Window
from sluice_sim.cluster.scenario import Routing, Settings
from sluice_sim.hardware.profiles import Profile, read_profile
from sluice_sim.traces.generators import LengthRange, Stream

FILE: Final = Path(__file__).parent / "loads.toml"
ISSUE: Final = "issue"  # the family of the loads with bars of their own
FIRST_SECONDS: Final = 1200.0  # the first part of a load, reported apart: 20 minutes …
FIRST_SHARE: Final = 0.2  # … or this share of a load shorter than 100 minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load. Times in seconds, lengths in tokens, rates in requests per second.

    It starts with `least` replicas and no history. `trace` names a bundled trace; without one, or with one that has
    lengths only, `streams` generate the arrivals."""

    name: str
    family: str
    size: int  # replicas that it needs, roughly: the search for constant fleets begins there
    seconds: float
    hardware: str  # a name in sluice_sim.hardware.profiles
    slo: tuple[float, float]  # TTFT and ITL targets
    cold_start: float = 60.0
    context: int = 131_072
    trace: str = ""
    lengths: str = ""  # second file of a ServeGen trace
    start: float = 0.0
    scale: float = 1.0
    streams: tuple[Stream, ...] = ()
    kv_tokens: int | None = None  # None: the hardware's
    routing: Routing = "round_robin"
    least: int = 1
    most: int = 60
    seed: int = 0
    first: float | None = None  # None: by FIRST_SECONDS and FIRST_SHARE

    @property
    def first_seconds(self) -> float:
        """Seconds of the first part, in which a law without history may lose a burst."""
        return min(FIRST_SECONDS, FIRST_SHARE * self.seconds) if self.first is None else self.first

    def profile(self) -> Profile:
        """The hardware's step-time model and memory. Raises BadProfile."""
        return read_profile(self.hardware)

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.profile().gpus or 1

    def track(self) -> Track:
        """The load in the form that the search for schedules takes."""
        return Track(
            name=self.name,
            words=self.family,
            load=TrackLoad(),
            windows=(("test", Window(0.0, self.seconds)),),
            ttft=self.slo[0],
            itl=self.slo[1],
            profile=self.hardware,
            hardware=self.hardware,
            gpus=self.gpus,
            kv_tokens=self.kv_tokens or self.profile().kv_tokens or 1,
            model_length=self.context,
            least=self.least,
            most=self.most,
            begin=self.least,
            cold_start=self.cold_start,
            routing=self.routing,
            mode="coarse",
        )

    def spec(self) -> LLMDeploymentSpec:
        """The resource: defaults except for the context, the SLO targets and the replica range."""
        return self.track().spec()

    def settings(self, begin: int | None = None) -> Settings:
        """The operating conditions. `begin`: replicas at the start, by default `least`."""
        return replace(self.track().settings(begin), seed=self.seed)


@lru_cache(maxsize=1)
def read_loads() -> Mapping[str, Load]:
    """All loads by name, in the order of the file. Raises KeyError for an unknown short name."""
    names = _Names(**tomllib.loads(FILE.read_text(encoding="utf-8")))
    found = [_load(family, row, names) for family, rows in names.families.items() for row in rows]
    return {one.name: one for one in found}


@dataclass(frozen=True, slots=True)
class _Names:
    """The tables of the file: what the short names stand for, and the rows by family."""

    slo: dict[str, list[float]]
    hardware: dict[str, str]
    traces: dict[str, list[str]]
    families: dict[str, list[dict[str, Any]]]


def _load(family: str, row: dict[str, Any], names: _Names) -> Load:
    ttft, itl = names.slo[row.pop("slo")]
    trace, lengths = [*names.traces.get(row.pop("trace", ""), ()), "", ""][:2]
    return Load(
        family=family,
        slo=(float(ttft), float(itl)),
        hardware=names.hardware[row.pop("hardware")],
        trace=trace,
        lengths=lengths,
        streams=tuple(_stream(one) for one in row.pop("streams", ())),
        **row,
    )


def _stream(row: dict[str, Any]) -> Stream:
    """A stream of the table. A `rate` that is one number is constant."""
    rate = row.pop("rate")
    points = [(0.0, rate)] if isinstance(rate, int | float) else rate
    prompt, output = (LengthRange(*row.pop(name, (1.0,))) for name in ("prompt", "output"))
    on_off = row.pop("on_off", None)
    return Stream(
        rate=tuple((float(at), float(value)) for at, value in points),
        on_off=None if on_off is None else (float(on_off[0]), float(on_off[1])),
        prompt=prompt,
        output=output,
        **row,
    )
