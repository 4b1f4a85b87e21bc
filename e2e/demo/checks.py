"""The checks of the demo, computed from the timeline: each has a sentence, a verdict and the numbers behind it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from e2e.demo.fleet import Line, Seen

WARMING = ("scheduling", "pulling", "loading")


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation and whether it was met."""

    what: str
    passed: bool
    numbers: str


@dataclass(frozen=True, slots=True)
class Dial:
    """A per-replica value of one pod over time."""

    points: tuple[tuple[float, int], ...]

    def between(self, start: float, end: float) -> tuple[int, ...]:
        """The values in [start, end]."""
        return tuple(value for at, value in self.points if start <= at <= end)


def dial_of(states: Sequence[Seen], pod: str, field: str) -> Dial:
    """The values of `field` of one pod while it was ready."""
    points = []
    for seen in states:
        for line in seen.line["pods"]:
            if line["name"] == pod and line["phase"] == "ready" and line[field] is not None:
                points.append((seen.at, int(line[field])))
    return Dial(tuple(points))


def stayed_at_one(states: Sequence[Seen]) -> Check:
    """Half a load causes no second replica."""
    replicas = [(seen.line["replicas"], seen.line["desired"]) for seen in states]
    return Check(
        "half of what one replica serves leaves replicas at 1",
        bool(replicas) and all(pair == (1, 1) for pair in replicas),
        f"replicas, desired: {sorted(set(replicas))}",
    )


def scaled_up(before: Line, ready_two: float | None, most: int) -> Check:
    """Replicas grow from 1 to 2 or more."""
    return Check(
        "the load drives replicas from 1 to 2 or more",
        before["replicas"] == 1 and ready_two is not None,
        f"from {before['replicas']} to {most} ready",
    )


@dataclass(frozen=True, slots=True)
class Course:
    """A limit over the overload: its median before the load, its minimum until the second replica was ready, and its
    median after that, while no replica was loading. Medians are robust against single outliers.
    """

    before: float
    lowest: int
    after: float

    def __str__(self) -> str:
        return f"{self.before:g} → {self.lowest} → {self.after:g}"


def course(dial: Dial, calm_from: float, load_from: float, ready_two: float, rest: Dial) -> Course | None:
    """The course of a limit; None if one of the three intervals has no value. `rest` covers the last interval.

    The minimum is taken before `ready_two`. A minimum taken afterwards would be below later values by construction, and
    the check could not fail.
    """
    calm, tight = (dial.between(*part) for part in ((calm_from, load_from), (load_from, ready_two)))
    after = [value for _, value in rest.points]
    if not calm or not tight or not after:
        return None
    return Course(before=median(calm), lowest=min(tight), after=median(after))


def is_grown(line: Line) -> bool:
    """True if every desired replica is ready. Limits are held down while a second or third replica is starting."""
    return bool(line["ready"] >= line["desired"]) and not any(pod["phase"] in WARMING for pod in line["pods"])


def fell_and_rose(limit: Course | None) -> tuple[Check, ...]:
    """Checks of the first replica's admission limit."""
    told = str(limit) if limit else "not seen"
    return (
        Check(
            "its admission limit falls as latency nears its target",
            limit is not None and limit.lowest < limit.before,
            f"limit {told}",
        ),
        Check(
            "and rises again once the second replica is ready",
            limit is not None and limit.after > limit.lowest,
            f"limit {told}",
        ),
    )


def queue_follows(states: Sequence[Seen], maximum: int) -> Check:
    """The queue bound of replicas is lower at the lowest limit than at the highest one; `maximum` is that of a replica that
    was not measured yet. Medians, because the bound follows the measured step times too.
    """
    bounds = defaultdict[int, list[int]](list)
    for pod in (pod for seen in states for pod in seen.line["pods"]):
        if pod["phase"] == "ready" and None not in (pod["limit"], pod["queue"]) and pod["limit"] < maximum:
            bounds[pod["limit"]].append(pod["queue"])
    ends = {end: median(bounds[end]) for end in (min(bounds), max(bounds))} if bounds else {}
    return Check(
        "the queue bound follows",
        len(ends) == 2 and ends[min(ends)] < ends[max(ends)],
        "; ".join(f"queue {bound:g} at limit {end}" for end, bound in ends.items()) or "not seen",
    )
