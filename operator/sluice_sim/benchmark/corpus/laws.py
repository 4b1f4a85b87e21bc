"""The laws that the corpus runs by name: Sluice, its variants, the peers, a constant count, and a stock engine."""

from dataclasses import dataclass
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.benchmark.corpus.variants import VARIANTS
from sluice_sim.benchmark.search.schedule import Static
from sluice_sim.policies.policy import Knob, Law
from sluice_sim.policies.registry import LAWS

OWN: Final = "sluice"
CONSTANT: Final = "constant"  # a constant count of engines with load shedding and admission
SCHEDULE: Final = "schedule"  # a written schedule
STOCK: Final = "stock"  # the same count without either, as an engine without Sluice
ABLATIONS: Final = ("replicas-only", "admission-only")  # of the registry; they are no peers
PEERS: Final = tuple(name for name in LAWS if name not in (OWN, *ABLATIONS))
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
