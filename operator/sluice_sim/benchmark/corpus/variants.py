"""Variants of Sluice: the law with a constant halved or doubled, or without one of its rules."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.spec import Scaling
from sluice_operator.autoscaler.replicas import dial, need, scale_in_order
from sluice_operator.autoscaler.replicas.history import Slot, between
from sluice_operator.autoscaler.replicas.rules import enough
from sluice_operator.autoscaler.replicas.stabilization import StabilizationState, next_count
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.policies.policy import Knob
from sluice_sim.policies.sluice import MISSES, OURS

# The defaults of spec.scaling, and the fields of `LAW`, that change a decision on replicas.
DEFAULTS: Final = ("burst_memory_seconds", "scale_down_stabilization_seconds")
SENSITIVE: Final = (
    "slot_seconds",
    "settled_seconds",
    "rise_seconds",
    "growth_most",
    "trend_seconds",
    "bin_seconds",
    "significance",
    "error_seconds",
    "error_most",
    "usual_cold_start_seconds",
    "cold_start_quantile",
    "cold_starts_kept",
    "starting_most_seconds",
    "window_seconds",
    "usual_scrape_seconds",
    "stale_after_scrapes",
)
_FACTORS: Final = ("growth_most", "error_most")  # 1 or more: what exceeds 1 is halved and doubled
_SHARES: Final = ("cold_start_quantile",)  # 1 at most
Rule = Callable[..., object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Sluice with other constants, other rules, or another default of spec.scaling.

    The rules read the module-level `LAW` and call each other by name. A variant therefore sets its constants in that
    object and its rules in their modules, for the time of a call of decide(). The process must not decide by another
    law at the same time: the benchmark's processes run one load after the other.
    """

    constants: Mapping[str, float] = field(default_factory=dict)  # by field of `LAW`
    rules: Mapping[tuple[ModuleType, str], Rule] = field(default_factory=dict)  # by module and name in it
    scaling: Mapping[str, int] = field(default_factory=dict)  # by field of spec.scaling
    name: str = "variant"
    setting: float = MISSES.default
    knob: Knob = MISSES
    admits: bool = True

    def initial(self) -> AutoscalerState:
        """An operator that has just started."""
        return OURS.initial()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
    ) -> tuple[Decision, AutoscalerState]:
        """Sluice's decision under the variant's constants and rules."""
        if self.scaling:
            spec = spec.model_copy(update={"scaling": spec.scaling.model_copy(update=dict(self.scaling))})
        values: list[tuple[object, str, object]] = [(LAW, name, value) for name, value in self.constants.items()]
        values += [(module, name, rule) for (module, name), rule in self.rules.items()]
        with _set(values):
            return OURS.decide(spec, observed, memory, now)

    def description(self) -> str:
        """All that makes the variant differ, for the key of a stored run: values, and the source of its rules."""
        rules = [(module.__name__, name, inspect.getsource(rule)) for (module, name), rule in self.rules.items()]
        return repr((sorted(self.constants.items()), sorted(self.scaling.items()), rules))


@contextmanager
def _set(values: Sequence[tuple[object, str, object]]) -> Iterator[None]:
    """Set attributes, of frozen objects too, and set them back. Raises AttributeError for an unknown name."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in values]
    try:
        for owner, name, value in values:
            object.__setattr__(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            object.__setattr__(owner, name, value)


def scaled(name: str, factor: float) -> Variant:
    """The constant or default times the factor, inside its range."""
    value = default(name)
    found = type(value)(factor * value)
    if name in _FACTORS:
        found = 1.0 + factor * (value - 1.0)
    elif name in _SHARES:
        found = min(1.0, factor * value)
    return Variant(scaling={name: int(found)}) if name in DEFAULTS else Variant(constants={name: found})


def default(name: str) -> float:
    """The value of the constant or default under Sluice."""
    value: float = getattr(Scaling() if name in DEFAULTS else LAW, name)
    return value


def _no_replicas(*_: Any) -> int:
    """A rule that asks for no more than one replica."""
    return 1


def _as_measured(*_: Any) -> float:
    """A factor that changes nothing."""
    return 1.0


def _never(*_: Any) -> bool:
    """A condition that is never met."""
    return False


def _no_hold(*_: Any) -> str:
    """No reason to keep the count."""
    return ""


def _no_order(*_: Any) -> tuple[int, float, str]:
    """The same rank for each replica: the oldest is removed first."""
    return 0, 0.0, ""


def _last_half(slots: Sequence[Slot], now: float, load: float, missed_share: float, most: int) -> int:
    """The fewest replicas that the last half of `rise_seconds` needs, whatever the half before needed."""
    return enough(between(slots, now - LAW.rise_seconds / 2.0, now), load, missed_share, most, LAW.significance)


def _at_once(snapshot: Snapshot, asked: need.Need, state: StabilizationState) -> int:
    """A scale-in to the largest need of the stabilization window in one step."""
    count = next_count(snapshot, asked, state)
    if count == 0 or count >= asked.allowed.inside(asked.current):
        return count
    return asked.allowed.inside(max(1, state.needs[0][1]))


# The law without one of its rules.
RULES: Final[Mapping[str, Variant]] = {
    "no-memory": Variant(rules={(need, "enough"): _no_replicas}),
    "no-lasting": Variant(rules={(need, "lasting"): _no_replicas}),
    "no-halves": Variant(rules={(need, "lasting"): _last_half}),
    "no-throughput": Variant(rules={(need, "by_throughput"): _no_replicas}),
    "no-growth": Variant(rules={(need, "growth"): _as_measured}),
    "no-kv": Variant(rules={(need, "in_memory"): _no_replicas}),
    "no-model-error": Variant(rules={(need, "model_error"): _as_measured}),
    "no-settling": Variant(constants={"settled_seconds": 0.0}),
    "no-chance": Variant(constants={"significance": 0.0}),
    "no-misses": Variant(rules={(need, "_has_no_replay"): _never}),
    "no-hold": Variant(rules={(need, "_hold"): _no_hold}),
    "no-stabilization": Variant(scaling={"scale_down_stabilization_seconds": 0}),
    "no-one-by-one": Variant(rules={(dial, "next_count"): _at_once}),
    "no-order": Variant(rules={(scale_in_order, "_cost"): _no_order}),
}
# Each constant and default, halved and doubled.
CONSTANTS: Final[Mapping[str, Variant]] = {
    f"{name}-{word}": scaled(name, factor)
    for name in (*DEFAULTS, *SENSITIVE)
    for word, factor in (("half", 0.5), ("double", 2.0))
}
VARIANTS: Final = {name: replace(one, name=name) for name, one in (*RULES.items(), *CONSTANTS.items())}
