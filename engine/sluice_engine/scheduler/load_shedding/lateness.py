"""Which requests of a queue can still meet their TTFT deadline, and which are demoted so that the others can.

A queue that is too long for its deadlines makes all requests late if it is served in order. Moore and Hodgson's rule
(Moore, Management Science 15, 1968) minimises the late ones: go through the queue, and whenever a request would be late,
demote the one with the most work of all up to there. Here the least important is demoted first: a lower priority, then
a tenant that was served more than others, by more than virtual token counters allow (`excess`), then the longest
prompt. A demoted request is served last.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sluice_engine.scheduler.chunking import MINIMUM_CHUNK, PROGRESS
from sluice_engine.scheduler.load_shedding.demotable import Demotable
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel, StepWork

SHORTEST: Final = 1e-9  # seconds: no division by zero where a model predicts that prompts take no time
YIELD_SECONDS: Final = PERFMODEL.shadow.yield_seconds  # a running prompt that missed its deadline yields for so long
ROUNDING: Final = 1e-9  # relative: more than the order of addition changes in a sum


class Candidate(NamedTuple):
    """A waiting request. `work`: seconds of prompt to compute; `deadline`: seconds from now for its first token, inf where
    it has run before and is never demoted."""

    work: float
    deadline: float
    priority: int = 0
    excess_usage: float = 0.0  # weighted tokens of its tenant beyond its share (`excess`)


class ServiceRate(NamedTuple):
    """The rate at which an engine serves its queue. Seconds."""

    running_work: float  # prompt work of running requests that can still be in time: late ones yield to the queue
    prefill_share: float  # of each second, left to prompts by decoding requests
    free_places: int  # requests that may start at once
    place_interval: float  # from one place that becomes free to the next
    step: float = 0.0  # of the step in flight, which a new request waits for

    def first_token(self, ahead: int, work: float, own: float) -> float:
        """Seconds until the first token of a request with `own` work behind `ahead` others, `work` being theirs and
        its own: the longer of its waits for a place and for the prompts before it."""
        turns, share = ahead + 1 - self.free_places, self.prefill_share
        placed = (turns * self.place_interval if turns > 0 else 0.0) + own / share
        computed = (self.running_work + work) / share
        return self.step + max(placed, computed)


def full_step(
    model: StepTimeModel, decode: StepWork, itl: float, batch_tokens: int, longest_step: float = math.inf
) -> tuple[float, float]:
    """Seconds of a full step for prompts, and for all else: chunks end at the inter-token target `itl` of the decoding
    requests; without any, prompts get the step's `batch_tokens`. No step is longer than `longest_step` seconds."""
    beside, least = model.predict(decode), model.prefill_token * MINIMUM_CHUNK
    most = max(min(model.prefill_token * batch_tokens, longest_step - beside), SHORTEST)
    if not decode.sequences:
        return most, beside
    if itl > beside:
        least = max(itl - beside, min(least, PROGRESS * beside))
    return min(max(least, SHORTEST), most), beside


def excess(usages: Mapping[str, float], allowed: float) -> dict[str, float]:
    """Weighted tokens by which each tenant's usage exceeds the least one by more than `allowed`; 0 where it does not,
    because a difference that no policy could avoid must not count against its requests."""
    least = min(usages.values(), default=0.0)
    return {tenant: max(0.0, usage - least - allowed) for tenant, usage in usages.items()}


def demoted(line: Sequence[Candidate], rate: ServiceRate) -> set[int]:
    """Indices of the demoted requests of `line`, which is in order of service; all others are predicted to be in time.
    O(n log n), and O(priorities) for each that would be late."""
    late: set[int] = set()
    kept: _DemotableByPriority | None = None  # not needed while all are in time
    ahead, work = 0, 0.0
    for index, one in enumerate(line):
        work += one.work
        if rate.first_token(ahead, work, one.work) > one.deadline:
            kept = _DemotableByPriority(line, index) if kept is None else kept
            chosen = kept.take(one, Load(ahead, work), rate) or [index]
            for each in chosen:
                late.add(each)
                work -= line[each].work
            ahead -= len(chosen)
        if kept is not None and index not in late:
            kept.add(index)
        ahead += 1
    return late


class Load(NamedTuple):
    """What a request waits for: `ahead` others, and seconds of prompt, its own included."""

    ahead: int
    work: float


class _DemotableByPriority:
    """The requests that are kept so far and may still be demoted, by priority."""

    def __init__(self, line: Sequence[Candidate], end: int) -> None:
        """All before `end` are kept. O(n log n)."""
        self._line = line
        population: dict[int, dict[int, tuple[float, float]]] = {}
        for index, one in enumerate(line):
            if one.deadline < math.inf:
                population.setdefault(one.priority, {})[index] = one.work, one.excess_usage
        self._classes = {priority: Demotable(population[priority]) for priority in sorted(population)}
        for index in range(end):
            self.add(index)

    def add(self, index: int) -> None:
        """The request is kept. O(log n)."""
        one = self._line[index]
        if one.deadline < math.inf:
            self._classes[one.priority].add(index)

    def take(self, one: Candidate, load: Load, rate: ServiceRate) -> list[int]:
        """Removes and returns the requests to demote so that `one`, the next in order, is in time: as many of a lower
        priority as needed; or one of its own priority that suffices. Empty where `one` itself is to be demoted.
        Amortised O(log n), and O(priorities)."""

        def in_time(others: int, less: float) -> bool:
            return rate.first_token(load.ahead - others, load.work - less, one.work) <= one.deadline

        lower = self._lower(one.priority, in_time, load.work)
        if lower:
            return lower
        same_priority = self._classes[one.priority]
        first = same_priority.first_sufficient(lambda work: in_time(1, work))
        if first is None or first[:2] >= (-one.excess_usage, -one.work):
            return []
        same_priority.remove(first.position)
        return [first.position]

    def _lower(self, priority: int, in_time: Callable[[int, float], bool], work: float) -> list[int]:
        classes = [self._classes[each] for each in self._classes if each < priority]
        count, all_of_them = sum(each.count for each in classes), sum(each.work for each in classes)
        if not count or not in_time(count, all_of_them + ROUNDING * (1.0 + work)):
            return []
        taken: list[tuple[Demotable, int]] = []
        less = 0.0
        for each in classes:
            while (first := each.first()) is not None:
                each.remove(first.position)
                taken.append((each, first.position))
                less -= first.work
                if in_time(len(taken), less):
                    return [index for _, index in taken]
        for each, index in taken:  # all of them fall short, by no more than sums are rounded
            each.add(index)
        return []
