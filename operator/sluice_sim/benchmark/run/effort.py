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

    omissions: str  # what the effort leaves out, for the reader of the table; empty if nothing
    train: WindowName
    test: WindowName
    tuning_runs: int  # settings of one law's knob on the train window, at most
    judge_adjacent: bool  # whether the next cheaper setting is judged on the test window too, for the curve
    extra_settings: int  # further settings on the test window if the tuned one misses the target
    tuned_laws: tuple[str, ...]  # laws whose knob is tuned; the others are judged at their defaults only
    clairvoyant_tracks: tuple[str, ...]  # tracks whose clairvoyant is searched; each search takes minutes to hours
    overload_laws: tuple[str, ...]  # laws that run on the track with capped replicas
    skipped_tracks: tuple[str, ...]  # tracks
    variant_tracks: tuple[str, ...]  # tracks that are run under every one of `variants`
    variants: tuple[str, ...]

    def tuning_runs_of(self, law: str) -> int:
        """How many settings of the law's knob may be tried."""
        return self.tuning_runs if law in self.tuned_laws else 0


FULL: Final = Effort(
    omissions="",
    train="train",
    test="test",
    tuning_runs=9,
    judge_adjacent=True,
    extra_settings=4,
    tuned_laws=tuple(LAWS),
    clairvoyant_tracks=NAMES,
    overload_laws=(*_OWN, "llm-d-slo", "hpa-running", "kpa", "dynamo-load"),
    skipped_tracks=(),
    variant_tracks=("T2", "T4"),
    variants=tuple(VARIANTS),
)
SHORT: Final = Effort(
    omissions=(
        "The short benchmark leaves out: T5b; all but one hour of T1, 15 minutes of T2 and T3, and 5 minutes of T5; the "
        "clairvoyant, and with it R99, except on T4; all but three settings of a knob, and tuning of all laws but sluice, "
        "llm-d-slo, wva-v2, hpa-running and kpa (a law that 'fails' did so at the settings tried); dynamo-load, "
        "hpa-running and kpa on T5; all variants except pod failures and late metrics on T4. FULL=1 measures everything."
    ),
    train="short_train",
    test="short_test",
    tuning_runs=3,
    judge_adjacent=False,
    extra_settings=1,
    tuned_laws=("sluice", "llm-d-slo", "wva-v2", "hpa-running", "kpa"),
    clairvoyant_tracks=("T4",),
    overload_laws=(*_OWN, "llm-d-slo"),
    skipped_tracks=("T5b",),
    variant_tracks=("T4",),
    variants=tuple(name for name in VARIANTS if name.startswith(("1 %", "metrics"))),
)
