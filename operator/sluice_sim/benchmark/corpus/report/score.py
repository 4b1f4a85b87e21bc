"""The figures of a load beside each other: cost over the clairvoyant's, the constant fleet's and the peers', regret."""

from dataclasses import dataclass
from typing import Final

from sluice_sim.benchmark.corpus.constants import Constants, best_attainment, cheapest_reaching
from sluice_sim.benchmark.corpus.figures import Figures, Part
from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.search.knob import TARGET

PEER_BETTER: Final = 0.003  # a peer that is better by this share of requests after the first part …
PEER_COST: Final = 0.99  # … at less than this share of the GPU-hours dominates
CONSTANT_BETTER: Final = 0.01
CONSTANT_COST: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The scores of one load. Ratios are Sluice's GPU-hours over others'; None if there is nothing to compare with."""

    over_clairvoyant: float | None
    over_constant: float | None  # the cheapest constant count that reaches as much
    constant: int | None
    over_peer: float | None  # the cheapest peer at its defaults that reaches as much
    peer: str | None
    regret: float | None  # share of requests missed beyond the hindsight schedule's; None if the target is met


def score_of(result: LoadResult) -> Score:
    """The scores of one load."""
    own = result.own
    constant = as_good_constant(result.constants, own)
    peer = cheapest_peer(result)
    known = result.hindsight
    return Score(
        over_clairvoyant=None if known is None else own.gpu_hours / known.clairvoyant.figures.gpu_hours,
        over_constant=None if constant is None else own.gpu_hours / result.constants[constant].gpu_hours,
        constant=constant,
        over_peer=None if peer is None else own.gpu_hours / result.peers[peer].gpu_hours,
        peer=peer,
        regret=regret(result),
    )


def as_good_constant(constants: Constants, own: Figures) -> int | None:
    """The cheapest constant count that reaches as much as Sluice, or as any constant count if Sluice reaches more."""
    if not constants:
        return None
    return cheapest_reaching(constants, min(own.attainment, best_attainment(constants)))


def cheapest_peer(result: LoadResult) -> str | None:
    """The cheapest peer that reaches as much as Sluice; None if none does."""
    as_good = [name for name, one in result.peers.items() if one.attainment >= result.own.attainment]
    return min(as_good, key=lambda name: result.peers[name].gpu_hours, default=None)


def regret(result: LoadResult) -> float | None:
    """Sluice's misses beyond those of the hindsight schedule that begins as a law does, over all requests."""
    if result.own.attainment >= TARGET or result.hindsight is None:
        return None
    whole = result.own.whole
    return max(0, whole.missed - result.hindsight.from_fewest.figures.whole.missed) / max(1, whole.offered)


def is_reachable(result: LoadResult) -> bool:
    """True if the hindsight schedule that begins as a law does reaches the target."""
    return result.hindsight is not None and result.hindsight.from_fewest.figures.attainment >= TARGET


def dominating_peer(result: LoadResult) -> str | None:
    """A peer that is better and cheaper after the first part; None if there is none."""
    own = result.own.after
    for name, found in result.peers.items():
        other = found.after
        if other.attainment > own.attainment + PEER_BETTER and other.gpu_hours < PEER_COST * own.gpu_hours:
            return name
    return None


def dominating_constant(result: LoadResult) -> int | None:
    """A constant count that is better and cheaper over the whole load; None if there is none."""
    ahead = (count for count, found in sorted(result.constants.items()) if _is_ahead(found.whole, result.own.whole))
    return next(ahead, None)


def dominating_constant_after(result: LoadResult) -> int | None:
    """A constant count that is better and cheaper after the first part; None if there is none."""
    ahead = (count for count, found in sorted(result.constants.items()) if _is_ahead(found.after, result.own.after))
    return next(ahead, None)


def _is_ahead(other: Part, own: Part) -> bool:
    return other.attainment >= own.attainment + CONSTANT_BETTER and other.gpu_hours <= CONSTANT_COST * own.gpu_hours
