"""The bars of the corpus, as pure functions of the results: a sentence with the measured figure, and whether it holds.

The five loads of the issue have bars of their own. The bars of the corpus are judged over all loads, and again with
each family left out: constants that were chosen on the other families must hold on that one too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.corpus.report.score import (
    as_good_constant,
    cheapest_peer,
    dominating_constant,
    dominating_constant_after,
    dominating_peer,
    is_reachable,
    score_of,
)

# Load → attainment that it must reach, whole and after the first 20 minutes.
OWN_BARS: Final = {
    "code": (0.975, 0.995),
    "code-x2": (0.97, 0.995),
    "r1-x0.05": (0.978, None),
    "r1-x0.1": (0.955, None),
    "r1-x0.3": (0.975, None),
}
OVER_PEER: Final = 1.1
OVER_CONSTANT: Final = 1.4
KEPT: Final = 0.985  # attainment on …
KEPT_SHARE: Final = 0.9  # … this share of the reachable loads
MEDIAN_CLAIRVOYANT: Final = 1.25
MEDIAN_CONSTANT: Final = 1.0
BEATEN_SHARE: Final = 0.1  # of the loads, on which a constant count may be better and cheaper
ENGINE_LOSS: Final = 0.002  # attainment that our engine may lose to a stock one at the same constant count


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar: what it says with the measured figure, and whether it holds."""

    sentence: str
    met: bool


Bar = Callable[[Sequence[LoadResult]], Verdict | None]  # None if nothing of it was measured


def own_bars(result: LoadResult) -> list[Verdict]:
    """The bars of one load of the issue; none for another load."""
    if result.load.name not in OWN_BARS:
        return []
    name, own = result.load.name, result.own
    whole, after = OWN_BARS[name]
    found = [Verdict(f"{name}: {whole:.1%} of the requests in time ({own.attainment:.2%})", own.attainment >= whole)]
    if after is not None:
        sentence = f"{name}: {after:.1%} after the first 20 minutes ({own.after.attainment:.2%})"
        found.append(Verdict(sentence, own.after.attainment >= after))
    peer = cheapest_peer(result)
    if peer is not None:
        found.append(_cost(f"{name}: {{}} of {peer}'s", own.gpu_hours, result.peers[peer].gpu_hours, OVER_PEER))
    constant = as_good_constant(result.constants, own)
    if constant is not None:
        cost = result.constants[constant].gpu_hours
        found.append(_cost(f"{name}: {{}} of {constant} constant replicas'", own.gpu_hours, cost, OVER_CONSTANT))
    return found


def _cost(words: str, own: float, other: float, most: float) -> Verdict:
    what = words.format(f"GPU-hours ≤ {most:g} ×")
    return Verdict(f"{what} ({own / other:.2f}: {own:.2f} over {other:.2f})", own <= most * other)


def kept_loads(results: Sequence[LoadResult]) -> Verdict | None:
    """Attainment on nine of ten loads on which the hindsight schedule reaches the target."""
    reachable = [one for one in results if is_reachable(one)]
    if not reachable:
        return None
    kept = sum(one.own.attainment >= KEPT for one in reachable)
    sentence = f"{KEPT:.1%} kept on {KEPT_SHARE:.0%} of the reachable loads ({kept} of {len(reachable)})"
    return Verdict(sentence, kept >= KEPT_SHARE * len(reachable))


def median_over_clairvoyant(results: Sequence[LoadResult]) -> Verdict | None:
    """The median cost over the clairvoyant's, on the reachable loads."""
    ratios = [score_of(one).over_clairvoyant for one in results if is_reachable(one)]
    return _median("the clairvoyant's", ratios, MEDIAN_CLAIRVOYANT)


def median_over_constant(results: Sequence[LoadResult]) -> Verdict | None:
    """The median cost over the best constant count's at the same attainment."""
    return _median("the best constant count's", [score_of(one).over_constant for one in results], MEDIAN_CONSTANT)


def _median(whose: str, ratios: Iterable[float | None], most: float) -> Verdict | None:
    known = [value for value in ratios if value is not None]
    if not known:
        return None
    found = median(known)
    return Verdict(f"median GPU-hours ≤ {most:g} × {whose} ({found:.3f}, {len(known)} loads)", found <= most)


def no_better_peer(results: Sequence[LoadResult]) -> Verdict | None:
    """No peer at its defaults is better and cheaper after the first part."""
    compared = [one for one in results if one.peers]
    beaten = [f"{one.load.name} by {peer}" for one in compared if (peer := dominating_peer(one)) is not None]
    sentence = f"no peer better by 0.3 points and cheaper by 1 % after the first part ({', '.join(beaten) or 'none'})"
    return Verdict(sentence, not beaten) if compared else None


def few_better_constants(results: Sequence[LoadResult]) -> Verdict | None:
    """On at most one load in ten a constant count is better by a point and cheaper by a tenth."""
    compared = [one for one in results if one.constants]
    beaten = [f"{one.load.name} by {count}" for one in compared if (count := dominating_constant(one)) is not None]
    sentence = f"a constant count better by 1 point and cheaper by a tenth on ≤ {BEATEN_SHARE:.0%} of the loads"
    after = sum(dominating_constant_after(one) is not None for one in compared)
    shown = (
        f"{sentence} ({len(beaten)} of {len(compared)}: {', '.join(beaten) or 'none'}; after the first part {after})"
    )
    return Verdict(shown, len(beaten) <= BEATEN_SHARE * len(compared)) if compared else None


def engine_never_worse(results: Sequence[LoadResult]) -> Verdict | None:
    """A constant fleet of our engine serves as many requests in time as one of a stock engine."""
    lost: dict[str, float] = {}
    for one in results:
        if one.stock is not None:
            count, stock = one.stock
            lost[one.load.name] = stock.attainment - one.constants[count].attainment
    if not lost:
        return None
    worse = [f"{name} {value:.2%}" for name, value in lost.items() if value > ENGINE_LOSS]
    sentence = f"our engine worse than a stock one by ≤ {ENGINE_LOSS:.1%} at every load ({', '.join(worse) or 'never'})"
    return Verdict(sentence, not worse)


BARS: Final[tuple[Bar, ...]] = (
    kept_loads,
    median_over_clairvoyant,
    median_over_constant,
    no_better_peer,
    few_better_constants,
    engine_never_worse,
)


def verdicts(results: Sequence[LoadResult]) -> list[Verdict]:
    """All bars: those of the issue's loads, and those of the corpus over all loads."""
    single = [verdict for one in results for verdict in own_bars(one)]
    return [*single, *(found for bar in BARS if (found := bar(results)) is not None)]


def families(results: Sequence[LoadResult]) -> list[str]:
    """The families of the loads, in order."""
    return list(dict.fromkeys(one.load.family for one in results))


def of_family(results: Sequence[LoadResult], family: str) -> list[LoadResult]:
    """The loads of one family."""
    return [one for one in results if one.load.family == family]


def without_family(results: Sequence[LoadResult], family: str) -> list[LoadResult]:
    """The loads of all families but one."""
    return [one for one in results if one.load.family != family]
