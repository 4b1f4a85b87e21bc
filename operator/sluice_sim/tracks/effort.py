"""How much of the score is measured: all of it, or what two processors do in ten minutes."""

from dataclasses import dataclass
from typing import Final

from sluice_sim.laws.registry import LAWS
from sluice_sim.tracks.track import NAMES, WindowName
from sluice_sim.tracks.variants import VARIANTS

_OWN: Final = ("sluice", "replicas-only", "admission-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What is measured, and how often."""

    words: str  # what it leaves out, for who reads the table; empty: nothing
    train: WindowName
    test: WindowName
    runs: int  # of one law's knob on the train window, at most
    near: bool  # whether the tuned setting's cheaper neighbour is judged on the test window too, for the curve
    more: int  # further settings on the test window where the tuned one misses the target
    tuned: tuple[str, ...]  # laws whose knob is turned; the others are judged at their defaults
    searched: tuple[str, ...]  # tracks whose clairvoyant is searched, minutes to hours each
    overload: tuple[str, ...]  # laws on the track whose replicas are capped
    skipped: tuple[str, ...]  # tracks
    weather: tuple[str, ...]  # tracks that are run under every one of `variants`
    variants: tuple[str, ...]

    def runs_of(self, law: str) -> int:
        """Settings of the law's knob that may be tried."""
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
