"""What the engine measured over the last seconds: the numbers that the fast loop steers by."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice_engine.admission import WINDOW_SECONDS
from sluice_engine.scheduler import Scheduler
from sluice_law.limit import EngineLoad
from sluice_law.steptime import StepWork


class _Step(NamedTuple):
    """What is kept of one."""

    ended_at: float
    prefill_tokens: int
    prefill_context: float
    gaps: Mapping[float, int]  # inter-token times in tenths of a millisecond, counted
    tokens: int  # of all of them
    sequences: int


class LoadWindow:
    """A sliding window over steps. Times are whatever clock the caller passes, in seconds."""

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._steps: deque[_Step] = deque()
        self._begun: float | None = None

    def record(self, work: StepWork, gaps: Iterable[float | None], now: float, times: int = 1) -> None:
        """One step that ended now: its work and the inter-token times it gave (None: a first token), each of them
        `times` times."""
        if self._begun is None:
            self._begun = now
        counts, total = dict[float, int](), 0
        for gap, count in Counter(gaps).items():  # nearly all of a step's are the same: they are counted, then rounded
            if gap is not None:
                rounded = round(gap, 4)
                counts[rounded] = counts.get(rounded, 0) + count * times
                total += count * times
        self._steps.append(_Step(now, work.prefill_tokens, work.prefill_context, counts, total, work.sequences))
        self._forget(now)

    def load(self, scheduler: Scheduler, now: float) -> EngineLoad:
        """The window and the scheduler's present state as one value."""
        self._forget(now)
        running = scheduler.running
        gaps: dict[float, int] = {}
        for step in self._steps:
            for gap, count in step.gaps.items():
                gaps[gap] = gaps.get(gap, 0) + count
        tokens = sum(gaps.values())
        begun = now if self._begun is None else self._begun
        span = max(1.0, min(self._seconds, now - begun))
        return EngineLoad(
            running=len(running),
            waiting=len(scheduler.waiting),
            mean_context=sum(request.computed for request in running) / len(running) if running else 0.0,
            prefill_rate=sum(step.prefill_tokens for step in self._steps) / span,
            prefill_context_rate=sum(step.prefill_context for step in self._steps) / span,
            observed_itl=_percentile(gaps, 0.95 * tokens),
            kv_tokens_total=scheduler.config.num_blocks * scheduler.config.block_size // scheduler.config.groups,
            kv_tokens_held=scheduler.pool.held * scheduler.config.block_size // scheduler.config.groups,
            growth_per_sequence=_growth(scheduler),
            mean_sequences=sum(step.sequences * step.tokens for step in self._steps) / tokens if gaps else None,
            mean_itl=sum(gap * count for gap, count in gaps.items()) / tokens if gaps else None,
            written_per_sequence=_written(scheduler) / len(running) if running else 0.0,
            prompt_per_output=_prompt_per_output(scheduler),
        )

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0].ended_at < now - self._seconds:
            self._steps.popleft()


def _prompt_per_output(scheduler: Scheduler) -> float | None:
    """Uncached prompt tokens per generated token, of requests that ended; None before one has."""
    if not scheduler.mean_output or scheduler.mean_prompt is None:
        return None
    return scheduler.mean_prompt / scheduler.mean_output


def _percentile(gaps: Mapping[float, int], left: float) -> float | None:
    """The gap up to which `left` of them are."""
    for gap in sorted(gaps):
        left -= gaps[gap]
        if left <= 0:
            return gap
    return None


def _growth(scheduler: Scheduler) -> float:
    """Tokens that a running request is expected still to write: the mean output of ended ones, less what is written;
    without any ended one, half of what it may write."""
    if not scheduler.running:
        return scheduler.mean_output or 0.0
    expected = 0.0
    for request in scheduler.running:
        left = request.max_tokens - request.generated
        mean = request.max_tokens / 2 if scheduler.mean_output is None else scheduler.mean_output
        more, window = min(left, max(1.0, mean - request.generated)), scheduler.config.window
        expected += more if window is None else _kept(scheduler, more, max(0, window - request.computed))
    return expected / len(scheduler.running)


def _written(scheduler: Scheduler) -> float:
    """Tokens that the running requests have written and hold."""
    window = scheduler.config.window
    if window is None:
        return sum(request.generated for request in scheduler.running)
    return sum(_kept(scheduler, request.generated, window) for request in scheduler.running)


def _kept(scheduler: Scheduler, tokens: float, seen: int) -> float:
    """Of so many tokens those that are held, where layers that slide hold `seen` of them at most, by their share."""
    groups, sliding = scheduler.config.groups, scheduler.config.sliding
    return (tokens * (groups - sliding) + min(tokens, seen) * sliding) / groups
