"""A track: load, SLO targets, hardware and operating conditions, in one small file that is easy to read and change.

The files are tracks/*.toml. The windows on which a law may be tuned (train) and is judged (test) are parts of the same
load; `short_*` are the windows of the short benchmark.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.cluster.scenario import Mode, Routing, Settings
from sluice_sim.hardware.profiles import Profile, read_profile

FOLDER: Final = Path(__file__).parent / "tracks"
NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
WindowName = Literal["train", "test", "short_train", "short_test"]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the load, in seconds of the trace."""

    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """The arrivals: a bundled trace, or a ramp of (requests per second, seconds) with fixed lengths."""

    trace: str = ""
    lengths: str = ""  # second file of a ServeGen trace
    rate: float | None = None  # the trace is thinned to this mean rate over the window
    scale: float = 1.0
    seed: int = 0
    ramp: tuple[tuple[float, float], ...] = ()
    waves: tuple[tuple[float, float], ...] = ()  # (share of the window, share of its requests that are kept), in order
    prompt: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Overload:
    """Overload: replicas are capped, a share of requests has high priority, and tenants have weights."""

    cap: float  # share of the static peak
    high: float
    priority: int
    tenants: tuple[tuple[str, float], ...]
    policy: Literal["fcfs", "priority", "fair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """All properties of a track. Times in seconds, targets as in spec.slo.

    A law that misses the targets even with `most` replicas has failed.
    """

    name: str
    words: str
    load: Load
    windows: tuple[tuple[WindowName, Window], ...]
    ttft: float
    itl: float
    profile: str  # a name in sluice_sim.hardware.profiles, or the terms of a step-time model
    hardware: str  # description for reports
    gpus: int  # per replica
    kv_tokens: int
    model_length: int
    least: int
    most: int
    begin: (
        # replicas that are ready at the start of a window: the static peak of the train window; T4: as in its source
        int
    )
    cold_start: float
    routing: Routing
    mode: Mode
    knob: bool = True  # whether laws are tuned here
    overload: Overload | None = None

    def window(self, name: WindowName) -> Window:
        """The named part of the load. Raises KeyError."""
        return dict(self.windows)[name]

    def spec(self) -> LLMDeploymentSpec:
        """The resource that all laws receive: defaults except for the SLO targets and the replica range."""
        wire = {
            "model": {"uri": "file:///model", "maxModelLength": self.model_length},
            "slo": {"ttftMilliseconds": round(self.ttft * 1000), "itlMilliseconds": round(self.itl * 1000)},
            "scaling": {"minReplicas": self.least, "maxReplicas": self.most},
            "engine": {"scheduling": {"policy": "fcfs" if self.overload is None else self.overload.policy}},
        }
        return LLMDeploymentSpec.model_validate(wire)

    def hardware_profile(self) -> Profile:
        """The step-time model and memory of the hardware. Raises BadProfile."""
        return read_profile(self.profile)

    def settings(self, begin: int | None = None) -> Settings:
        """The operating conditions of the plain variant."""
        return Settings(
            self.hardware_profile().model,
            kv_tokens=self.kv_tokens,
            cold_start=self.cold_start,
            max_model_length=self.model_length,
            routing=self.routing,
            mode=self.mode,
            begin=self.begin if begin is None else begin,
        )


def read_track(name: str) -> Track:
    """One of NAMES. Raises KeyError for another name."""
    if name not in NAMES:
        raise KeyError(f"no track is called {name!r}; there are {', '.join(NAMES)}")
    found = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    load = dict(found.pop("load"))
    for pairs in ("ramp", "waves"):
        load[pairs] = tuple((float(first), float(second)) for first, second in load.get(pairs, ()))
    overload = found.pop("overload", None)
    if overload is not None:
        tenants = tuple((tenant, float(weight)) for tenant, weight in overload.pop("tenants").items())
        overload = Overload(**overload, tenants=tenants)
    windows = tuple((key, Window(*map(float, span))) for key, span in found.pop("windows").items())
    return Track(name=name, load=Load(**load), windows=windows, overload=overload, **found)
