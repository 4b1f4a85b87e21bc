"""A track: a load, a promise, the hardware and its weather, as one small file that everybody can read and change.

The files are files/*.toml. What a law may be tuned on (train) and what it is judged on (test) are windows of the
same load; `short_*` are the windows of the short bench.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.profiles import Profile, read_profile
from sluice_sim.settings import Mode, Routing, Settings

FOLDER: Final = Path(__file__).parent / "files"
NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
WindowName = Literal["train", "test", "short_train", "short_test"]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the load, in seconds of the trace."""

    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """Where requests come from: a bundled trace, or a ramp of (requests per second, seconds) at fixed lengths."""

    trace: str = ""
    lengths: str = ""  # ServeGen's second file
    rate: float | None = None  # thinned to this mean over the window
    scale: float = 1.0
    seed: int = 0
    ramp: tuple[tuple[float, float], ...] = ()
    waves: tuple[tuple[float, float], ...] = ()  # (share of the window, share of its requests that come), in turn
    prompt: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Overload:
    """A track whose replicas are capped, and who asks: the share of high priority, and tenants by weight."""

    cap: float  # of the static peak
    high: float
    priority: int
    tenants: tuple[tuple[str, float], ...]
    policy: Literal["fcfs", "priority", "fair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Times in seconds, targets as in spec.slo. Who does not keep the promise with `most` replicas has failed."""

    name: str
    words: str
    load: Load
    windows: tuple[tuple[WindowName, Window], ...]
    ttft: float
    itl: float
    profile: str  # a name of sluice_sim.profiles, or its terms
    hardware: str  # in words
    gpus: int  # per replica
    kv_tokens: int
    model_length: int
    least: int
    most: int
    begin: (
        int  # replicas that are ready when a window begins: the train window's static peak, T4's as its authors begin
    )
    cold_start: float
    routing: Routing
    mode: Mode
    knob: bool = True  # whether laws are tuned here
    overload: Overload | None = None

    def window(self, name: WindowName) -> Window:
        """The named part. Raises KeyError."""
        return dict(self.windows)[name]

    def spec(self) -> LLMDeploymentSpec:
        """The resource that all laws are given: defaults but for the promise and the range."""
        wire = {
            "model": {"uri": "file:///model", "maxModelLength": self.model_length},
            "slo": {"ttftMilliseconds": round(self.ttft * 1000), "itlMilliseconds": round(self.itl * 1000)},
            "scaling": {"minReplicas": self.least, "maxReplicas": self.most},
            "engine": {"scheduling": {"policy": "fcfs" if self.overload is None else self.overload.policy}},
        }
        return LLMDeploymentSpec.model_validate(wire)

    def hardware_profile(self) -> Profile:
        """What one step costs. Raises BadProfile."""
        return read_profile(self.profile)

    def settings(self, begin: int | None = None) -> Settings:
        """The weather of the plain track."""
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
    """One of NAMES. Raises KeyError for another."""
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
