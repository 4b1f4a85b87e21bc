"""How much of the score is measured: all of it, or the part that two cores measure in ten minutes."""

from dataclasses import dataclass
from typing import Final

from sluice_sim.benchmark.track import NAMES, WindowName
from sluice_sim.benchmark.variants import VARIANTS
from sluice_sim.policies.registry import LAWS

_OWN: Final = ("sluice", "replicas-only", "admission-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What is measured, and with how many runs."""

    words: str  # what the effort leaves out, for the reader of the table; empty if nothing
    train: WindowName
    test: WindowName
    runs: int  # settings of one law's knob on the train window, at most
    near: bool  # whether the next cheaper setting is judged on the test window too, for the curve
    more: int  # further settings on the test window if the tuned one misses the target
    tuned: tuple[str, ...]  # laws whose knob is tuned; the others are judged at their defaults only
    searched: tuple[str, ...]  # tracks whose clairvoyant is searched; each search takes minutes to hours
    overload: tuple[str, ...]  # laws that run on the track with capped replicas
    skipped: tuple[str, ...]  # tracks
    weather: tuple[str, ...]  # tracks that are run under every one of `variants`
    variants: tuple[str, ...]

    def runs_of(self, law: str) -> int:
        """How many settings of the law's knob may be tried."""
        return self.runs if law in self.tuned else 0


FULL: Final = Effort(
    words="",
    train="train",
    test="test",
    runs=9,
    near=True,
    more=4,
    tuned=tuple(LAWS),
    searched=NAMES,
    overload=(*_OWN, "llm-d-slo", "hpa-running", "kpa", "dynamo-load"),
    skipped=(),
    weather=("T2", "T4"),
    variants=tuple(VARIANTS),
)
SHORT: Final = Effort(
    words=(
        "This is the short form. It leaves out T5b, and all but an hour of T1, a quarter of an hour of T2 and T3 and five minutes of T5; "
        "the clairvoyant, and with it R99, but on T4; all but three settings of a knob, and of the laws that are not named here "
        "all but the default: sluice, llm-d-slo, wva-v2, hpa-running, kpa (a law that 'fails' did so at the settings tried); "
        "dynamo-load, hpa-running and kpa on T5; and of the other weather all but deaths and late metrics on T4. FULL=1 measures everything."
    ),
    train="short_train",
    test="short_test",
    runs=3,
    near=False,
    more=1,
    tuned=("sluice", "llm-d-slo", "wva-v2", "hpa-running", "kpa"),
    searched=("T4",),
    overload=(*_OWN, "llm-d-slo"),
    skipped=("T5b",),
    weather=("T4",),
    variants=tuple(name for name in VARIANTS if name.startswith(("1 %", "metrics"))),
)
