"""What must have happened, read from what did: each check is a sentence, a verdict and the numbers behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from e2e.demo.fleet import Line, Seen

WARMING = ("scheduling", "pulling", "loading")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to happen."""

    what: str
    passed: bool
    numbers: str


@dataclass(frozen=True, slots=True)
class Dial:
    """A per-replica number of one pod over time."""

    points: tuple[tuple[float, int], ...]

    def between(self, start: float, end: float) -> tuple[int, ...]:
        """Its values in [start, end]."""
        return tuple(value for at, value in self.points if start <= at <= end)


def dial_of(states: Sequence[Seen], pod: str, field: str) -> Dial:
    """The dial `field` (limit or queue) of one pod while it was ready."""
    points = []
    for seen in states:
        for line in seen.line["pods"]:
            if line["name"] == pod and line["phase"] == "ready" and line[field] is not None:
                points.append((seen.at, int(line[field])))
    return Dial(tuple(points))


def stayed_at_one(states: Sequence[Seen]) -> Check:
    """No second replica under half a load."""
    replicas = [(seen.line["replicas"], seen.line["desired"]) for seen in states]
    return Check(
        "half of what one replica holds leaves replicas at 1",
        bool(replicas) and all(pair == (1, 1) for pair in replicas),
        f"replicas, desired: {sorted(set(replicas))}",
    )


def scaled_up(before: Line, ready_two: float | None, most: int) -> Check:
    """1 → 2 or more."""
    return Check(
        "the load drives replicas from 1 to 2 or more",
        before["replicas"] == 1 and ready_two is not None,
        f"from {before['replicas']} to {most} ready",
    )


@dataclass(frozen=True, slots=True)
class Course:
    """A dial as it usually stood before the load, at its lowest until the second replica was ready, and as it
    usually stood after, while none was on its way. Medians: one odd second shall not make the story."""

    before: float
    lowest: int
    after: float

    def __str__(self) -> str:
        return f"{self.before:g} → {self.lowest} → {self.after:g}"


def course(dial: Dial, calm_from: float, load_from: float, ready_two: float, rest: Dial) -> Course | None:
    """None where the dial was not seen in all three parts; `rest` is the last of them. The lowest is that of the time
    before `ready_two`: one picked from the time after it would lie below what follows by construction, and the check
    could not fail."""
    calm, tight = (dial.between(*part) for part in ((calm_from, load_from), (load_from, ready_two)))
    after = [value for _, value in rest.points]
    if not calm or not tight or not after:
        return None
    return Course(before=median(calm), lowest=min(tight), after=median(after))


def is_grown(line: Line) -> bool:
    """Every replica asked for is ready. While one is on its way, be it the second or a third, limits are held down."""
    return bool(line["ready"] >= line["desired"]) and not any(pod["phase"] in WARMING for pod in line["pods"])


def fell_and_rose(limit: Course | None, queue: Course | None) -> tuple[Check, ...]:
    """The admission limit of the first replica, and its queue bound after it."""
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
        Check(
            "the queue bound follows",
            queue is not None and queue.lowest < queue.before and queue.after > queue.lowest,
            f"queue {queue if queue else 'not seen'}",
        ),
    )
