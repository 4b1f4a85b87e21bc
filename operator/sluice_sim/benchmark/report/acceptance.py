"""The acceptance criteria of the score: a sentence with the measured figure, and whether it holds."""

from collections.abc import Sequence
from statistics import median

from sluice_sim.benchmark.report.table import OWN, TrackScore
from sluice_sim.benchmark.run.plan import attained_at
from sluice_sim.benchmark.search.clairvoyant import Clairvoyant
from sluice_sim.benchmark.search.knob import TARGET, Trial


def acceptance_criteria(scores: Sequence[TrackScore]) -> dict[str, bool]:
    """Sentence → True if the criterion holds. A figure that was not measured has no criterion."""
    found: dict[str, bool] = {}
    for score in scores:
        if score.clairvoyant is not None:
            found |= _clairvoyant_criteria(score, score.clairvoyant)
        if score.laws:
            found |= _cost_criteria(score)
    for score in scores:
        if "sluice" in score.overload:
            found |= _overload_criteria(score) if not score.track.load.waves else _joint_control_criteria(score)
        if score.robust:
            found |= _robustness_criteria(score)
    return found


def _robustness_criteria(score: TrackScore) -> dict[str, bool]:
    name, variants = score.track.name, score.robust["sluice"]
    ours = [value for value in variants.values() if value is not None]
    return {
        f"{name}: median R99 over the variants 1.25 or less": bool(ours) and median(ours) <= 1.25,
        f"{name}: worst R99 over the variants 1.5 or less": len(ours) == len(variants) and max(ours) <= 1.5,
    }


def _clairvoyant_criteria(score: TrackScore, known: Clairvoyant) -> dict[str, bool]:
    name = score.track.name
    reached = {"plain": known.result["attainment"], **score.variant_attainment}
    worst = min(reached, key=lambda variant: reached[variant])
    found = {
        f"{name}: the clairvoyant itself reaches 99 % (at its worst {reached[worst]:.2%}, {worst})": (
            reached[worst] >= TARGET
        ),
        f"{name}: nothing beats the clairvoyant": min(_ratios(score, known), default=1.0) >= 1.0,
    }
    if name == "T1":
        own = next((one.default_gpu_hours for one in score.laws if one.law == "sluice"), None)
        found["T1: R99 of 1.15 or less"] = own is not None and own / known.gpu_hours <= 1.15
    return found


def _ratios(score: TrackScore, known: Clairvoyant) -> list[float]:
    """Ratio to the clairvoyant of all compared costs: tuned and untuned laws, the static peak, and the variants."""
    costs = [cost for one in score.laws for cost in (one.gpu_hours, one.default_gpu_hours)]
    costs += [score.static[1]["gpu_hours"]] if score.static is not None else []
    by_variant = [one for variants in score.robust.values() for one in variants.values()]
    return [one / known.gpu_hours for one in costs if one is not None] + [one for one in by_variant if one is not None]


def _cost_criteria(score: TrackScore) -> dict[str, bool]:
    name = score.track.name
    own = next((one for one in score.laws if one.law == "sluice"), None)
    peers = [one.gpu_hours for one in score.laws if one.law not in OWN and one.gpu_hours is not None]
    at = own.default_gpu_hours if own is not None else None
    found = {
        f"{name}: ours at its defaults is the cheapest at 99 % "
        f"(best tuned peer {_cheapest(peers, score)}, ours {_cheapest([at], score)})": at is not None
        and at <= min(peers, default=at)
    }
    if own is None:
        return found
    if name == "T4":
        attained, replicas = own.default["attainment"], own.default["replicas_mean"]
        sentence = f"T4: 99 % at 5.93 replicas or fewer (ours {attained:.2%} at {replicas:.2f})"
        found[sentence] = attained >= TARGET and replicas <= 5.93
    if name == "T3" and score.hit_bound:
        hits = own.default["hit_ratio"] / score.hit_bound
        found[f"T3: 95 % of an endless cache's hits (ours {hits:.1%})"] = hits >= 0.95
    return found


def _overload_criteria(score: TrackScore) -> dict[str, bool]:
    name, extra = score.track.name, score.overload["sluice"]["extra"]
    return {
        f"{name}: 92.5 % of the capacity bound (ours {extra['of_bound']:.1%})": extra["of_bound"] >= 0.925,
        f"{name}: 99 % of high priority good (ours {extra['high_good']:.1%})": extra["high_good"] >= 0.99,
        f"{name}: fairness gap within its bound": extra["fairness_gap"] <= extra["fairness_bound"],
    }


def _joint_control_criteria(score: TrackScore) -> dict[str, bool]:
    """Both dials against each one alone at the same GPU-hours.

    The single-dial results are interpolated linearly between constant fleets, because a fleet may change its size
    during the window. If all of them cost more than both dials together, each of them must serve less.
    """
    ours, hours = score.overload["sluice"]["attainment"], score.overload["sluice"]["gpu_hours"]
    beaten, figures = True, [f"ours {ours:.1%}"]
    for law in ("admission-only", "replicas-only"):
        tried = [found for name, found in score.overload.items() if name.startswith(law)]
        alone = attained_at([Trial(found["gpu_hours"], found) for found in tried], hours)
        if alone is None:  # no tried setting is as cheap
            alone = max((found["attainment"] for found in tried), default=0.0)
        beaten = beaten and bool(tried) and alone < ours
        figures.append(f"{law} {alone:.1%}")
    sentence = (
        f"{score.track.name}: both dials serve more than either alone for the same GPU-hours ({', '.join(figures)})"
    )
    return {sentence: beaten}


def _cheapest(costs: Sequence[float | None], score: TrackScore) -> str:
    """The least cost as text: relative to the clairvoyant, or in GPU-hours without one."""
    found = [cost for cost in costs if cost is not None]
    if not found:
        return "never"
    if score.clairvoyant is None:
        return f"{min(found):.2f} GPU-hours"
    return f"{min(found) / score.clairvoyant.gpu_hours:.3f}"
