"""The laws that the corpus runs: Sluice, its variants, the peers, constant counts, late schedules, a stock engine."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.variants import VARIANTS
from sluice_sim.benchmark.search.schedule import PIECE, Counts, Scheduled, Static, TimedLaw
from sluice_sim.policies.policy import Knob, Law
from sluice_sim.policies.registry import LAWS

OWN: Final = "sluice"
CONSTANT: Final = "constant"  # a constant count of engines with load shedding and admission
SCHEDULE: Final = "schedule"  # a written schedule
LATE_START: Final = "late-start"  # a written schedule whose first order comes after a delay
LATE_RISE: Final = "late-rise"  # a written schedule that answers a sudden rise of the load after a delay
UNFORESEEN: Final = "unforeseen"  # a written schedule that orders each piece's count after the piece has begun
STOCK: Final = "stock"  # the same count without either, as an engine without Sluice
ABLATIONS: Final = ("replicas-only", "admission-only")  # of the registry; they are no peers
PEERS: Final = tuple(name for name in LAWS if name not in (OWN, *ABLATIONS))
SUDDEN: Final = 60.0  # seconds in which a rise is sudden
STOCK_COUNT: Final = Knob("replicas", 1.0, (1.0,), "replicas")


@dataclass(frozen=True, slots=True)
class StockFleet:
    """A constant count of engines whose limits stay at their maximum and that serve first come first served."""

    setting: float
    name: str = STOCK
    knob: Knob = STOCK_COUNT
    admits: bool = False

    def initial(self) -> None:
        """No memory."""

    def decide(self, spec: LLMDeploymentSpec, observed: Observed, memory: None, now: float) -> tuple[Decision, None]:
        """The count, and no bounds."""
        del spec, observed, memory, now
        return Decision(replicas=round(self.setting), desired=round(self.setting)), None


@dataclass(frozen=True, slots=True)
class LateSchedule(TimedLaw):
    """A schedule that keeps at most `cap` replicas until `begins`, and is `behind` its times. In seconds."""

    schedule: Scheduled
    cap: int
    begins: float
    behind: float = 0.0
    setting: float = 1.0
    name: str = LATE_START
    knob: Knob = STOCK_COUNT
    admits: bool = True

    def count(self, now: float) -> int:
        """The count of the schedule, late and at first capped."""
        planned = self.schedule.count(now - self.behind)
        return min(self.cap, planned) if now < self.begins else planned


def late_schedule(law: str, counts: Counts, load: Load, delay: float) -> LateSchedule:
    """The schedule begun as a law begins, with orders that come `delay` seconds after what they answer."""
    if law == LATE_START:
        return LateSchedule(Scheduled(counts, load.cold_start), load.least, delay)
    if law == LATE_RISE:
        rise = sudden_rise(load) or 0.0
        before = counts[max(0, int(rise / PIECE) - 1)]
        return LateSchedule(Scheduled(counts, load.cold_start), before, rise + delay, name=LATE_RISE)
    return LateSchedule(Scheduled(counts, 0.0), load.least, delay, behind=delay, name=UNFORESEEN)


def sudden_rise(load: Load) -> float | None:
    """When a generated load begins to at least double within a minute; None where it never does."""
    return min(
        (
            begin
            for stream in load.streams
            for (begin, before), (end, after) in pairwise(stream.rate)
            if end - begin <= SUDDEN and after >= 2.0 * before and after > 0.0
        ),
        default=None,
    )


def is_ours(law: str) -> bool:
    """True for Sluice and its variants: their results depend on the code of the law."""
    return law == OWN or law in VARIANTS


def law_named(name: str, setting: float | None = None) -> Law:
    """The law at its default, or at `setting`. Raises KeyError for an unknown name."""
    if name in (CONSTANT, STOCK):
        return (Static if name == CONSTANT else StockFleet)(setting or 1.0)
    if name in VARIANTS:
        return VARIANTS[name]
    entry = LAWS[name]
    return entry.default() if setting is None else entry.make(setting)
