"""Who of a queue can still be served in time, and who is given up so that the others can.

A queue that is too long for its deadlines makes everybody late if it is served in order. Moore and Hodgson's rule
(Moore, Management Science 15, 1968) keeps the most: go through the line, and whenever somebody would be late, give up
the one whose work is the longest of all up to there. Here the least important goes first: a lower priority, then a
tenant that has had more than others, by more than virtual token counters promise anyway (`beyond`), then the longest
prompt. Who is given up is served last, not forgotten.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sluice_engine.scheduler.budget import MINIMUM_CHUNK, PROGRESS
from sluice_law.steptime import StepTimeModel, StepWork

SHORTEST: Final = 1e-9  # seconds: a model that says that prompts cost nothing divides nothing by zero


class Candidate(NamedTuple):
    """One that waits. `work`: seconds of prompt to compute; `deadline`: seconds from now for its first token, inf
    where it has begun before and cannot be given up."""

    work: float
    deadline: float
    priority: int = 0
    standing: float = 0.0  # weighted tokens that its tenant has had and waits for beyond what is nobody's fault


class Pace(NamedTuple):
    """How an engine works off its queue. Seconds."""

    begun: float  # prompt work that is before anybody's who waits
    share: float  # of each second, what streams that decode leave to prompts
    free: int  # places that are empty
    between: float  # seconds from one place that comes free to the next
    step: float = 0.0  # of a step: who comes waits for the one under way to end

    def first_token(self, ahead: int, work: float, own: float) -> float:
        """Seconds until the first token of a request with `own` work behind `ahead` others, `work` being theirs and
        its own: it waits for a place, and for the prompts before it, the longer of which counts."""
        turns, share = ahead + 1 - self.free, self.share
        placed = (turns * self.between if turns > 0 else 0.0) + own / share
        computed = (self.begun + work) / share
        return self.step + max(placed, computed)


def full_step(model: StepTimeModel, decode: StepWork, itl: float, batch_tokens: int) -> tuple[float, float]:
    """Seconds that a full step gives to prompts, and to all else: chunks end where the streams' inter-token target `itl`
    does; with nobody decoding the step's `batch_tokens` are theirs."""
    most = max(model.prefill_token * batch_tokens, SHORTEST)
    if not decode.sequences:
        return most, model.base
    beside, least = model.predict(decode), model.prefill_token * MINIMUM_CHUNK
    if itl > beside:
        least = max(itl - beside, min(least, PROGRESS * beside))
    return min(max(least, SHORTEST), most), beside


def beyond(standings: Mapping[str, float], allowed: float) -> dict[str, float]:
    """Weighted tokens by which each tenant is further ahead of the least than `allowed`; 0 where it is not: a difference
    that no rule could avoid makes nobody's request worth less than another's."""
    least = min(standings.values(), default=0.0)
    return {tenant: max(0.0, standing - least - allowed) for tenant, standing in standings.items()}


def given_up(line: Sequence[Candidate], pace: Pace) -> set[int]:
    """Indices of those of the line, in order of service, that are given up; all others are predicted to be in time."""
    gone: set[int] = set()
    kept: list[int] = []
    work = 0.0
    for index, one in enumerate(line):
        kept.append(index)
        work += one.work
        if pace.first_token(len(kept) - 1, work, one.work) <= one.deadline:
            continue
        for leaver in _leavers(line, kept, pace, work):
            kept.remove(leaver)
            gone.add(leaver)
            work -= line[leaver].work
    return gone


def _leavers(line: Sequence[Candidate], kept: Sequence[int], pace: Pace, work: float) -> list[int]:
    """Who leaves for the last of `kept`, `work` being all of theirs, to be in time: as many of a lower priority as it
    takes; or one of its own that suffices, which it may be itself."""
    one = line[kept[-1]]

    def in_time(others: Sequence[int]) -> bool:
        less = sum(line[index].work for index in others)
        return pace.first_token(len(kept) - 1 - len(others), work - less, one.work) <= one.deadline

    free = [index for index in kept[:-1] if line[index].deadline < math.inf]
    lower = sorted((index for index in free if line[index].priority < one.priority), key=lambda i: _worth(line[i]))
    if lower and in_time(lower):
        count = next(count for count in range(1, len(lower) + 1) if in_time(lower[:count]))
        return lower[:count]
    alike = [index for index in free if line[index].priority == one.priority and in_time([index])]
    return [min((kept[-1], *alike), key=lambda i: _worth(line[i]))]


def _worth(one: Candidate) -> tuple[int, float, float]:
    """What counts for keeping it: the least goes first."""
    return one.priority, -one.standing, -one.work
