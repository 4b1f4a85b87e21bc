"""What is measured on one load, as a plan: Sluice, the peers, constant fleets, a stock fleet and the hindsight."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sluice_sim.benchmark.corpus.constants import (
    Constants,
    best_attainment,
    bracketing,
    cheapest_reaching,
    constant_fleets,
)
from sluice_sim.benchmark.corpus.figures import Figures, from_dict
from sluice_sim.benchmark.corpus.hindsight import Hindsight, hindsight
from sluice_sim.benchmark.corpus.laws import OWN, PEERS, STOCK
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.tasks import LawRun
from sluice_sim.benchmark.run.provenance import other_digests
from sluice_sim.benchmark.search.knob import TARGET

LoadPlan = Generator[Sequence[LawRun], Sequence[dict[str, Any]], "LoadResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is measured. `own`: Sluice or one of its variants."""

    own: str = OWN
    peers: tuple[str, ...] = PEERS
    with_constants: bool = True
    with_hindsight: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The figures of one load. `stock`: the count of a stock fleet, and its figures."""

    load: Load
    own: Figures
    peers: dict[str, Figures]
    constants: Constants
    stock: tuple[int, Figures] | None = None
    hindsight: Hindsight | None = None
    other_code: set[str] = field(default_factory=set)  # digests of other code behind these figures


def load_plan(load: Load, scope: Scope) -> LoadPlan:
    """The runs of one load. Records which other code measured any of them."""
    codes: set[str] = set()
    plan = _runs(load, scope)
    sent: Sequence[dict[str, Any]] | None = None
    while True:
        try:
            tasks = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return replace(end.value, other_code=codes)
        sent = yield tasks
        codes |= other_digests(sent)


def _runs(load: Load, scope: Scope) -> LoadPlan:
    names = [scope.own, *scope.peers]
    found = yield [LawRun(load.name, law) for law in names]
    own, *peers = map(from_dict, found)
    constants: Constants = {}
    stock = known = None
    if scope.with_constants:
        constants = yield from constant_fleets(load)
        count = cheapest_reaching(constants, min(TARGET, best_attainment(constants))) or max(constants)
        (one,) = yield [LawRun(load.name, STOCK, float(count))]
        stock = (count, from_dict(one))
        if scope.with_hindsight:
            known = yield from hindsight(load, constants)
        constants = yield from bracketing(load, constants, own)
    return LoadResult(
        load=load,
        own=own,
        peers=dict(zip(scope.peers, peers, strict=True)),
        constants=constants,
        stock=stock,
        hindsight=known,
    )
