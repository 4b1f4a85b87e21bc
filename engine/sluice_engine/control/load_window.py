"""Measurements of the last seconds: the inputs of the fast loop that sets the concurrency."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sluice_engine.control.limit_controller import WINDOW_SECONDS
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.request import Request
from sluice_perfmodel.concurrency_limit import EngineLoad
from sluice_perfmodel.step_time import StepWork


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Running requests and held blocks at one instant. Means are over finished requests, in tokens; None before the first."""

    cache: CacheConfig
    running: Sequence[Request]
    waiting: int
    blocks_held: int
    mean_output: float | None
    mean_prompt: float | None  # uncached prompt tokens


class _Step(NamedTuple):
    """One step in the window."""

    ended_at: float
    prefill_tokens: int
    prefill_context: float
    gaps: Mapping[float, int]  # inter-token times in tenths of a millisecond, counted
    tokens: int  # number of gaps
    sequences: int


class LoadWindow:
    """A sliding window over steps. Times are of the caller's clock, in seconds."""

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._steps: deque[_Step] = deque()
        self._started: float | None = None

    def record(self, work: StepWork, gaps: Iterable[float | None], now: float, times: int = 1) -> None:
        """Add a step that ended at `now`: its work and its inter-token times (None: a first token), each counted `times`
        times.
        """
        if self._started is None:
            self._started = now
        counts, total = dict[float, int](), 0
        for gap, count in Counter(gaps).items():  # nearly all gaps of a step are equal: count first, then round
            if gap is not None:
                rounded = round(gap, 4)
                counts[rounded] = counts.get(rounded, 0) + count * times
                total += count * times
        self._steps.append(_Step(now, work.prefill_tokens, work.prefill_context, counts, total, work.sequences))
        self._forget(now)

    def load(self, occupancy: Occupancy, now: float) -> EngineLoad:
        """The window and the present occupancy as one value."""
        self._forget(now)
        running = occupancy.running
        gaps: dict[float, int] = {}
        for step in self._steps:
            for gap, count in step.gaps.items():
                gaps[gap] = gaps.get(gap, 0) + count
        tokens = sum(gaps.values())
        started = now if self._started is None else self._started
        span = max(1.0, min(self._seconds, now - started))
        return EngineLoad(
            running=len(running),
            waiting=occupancy.waiting,
            mean_context=sum(request.computed for request in running) / len(running) if running else 0.0,
            prefill_rate=sum(step.prefill_tokens for step in self._steps) / span,
            prefill_context_rate=sum(step.prefill_context for step in self._steps) / span,
            observed_itl=_percentile(gaps, 0.95 * tokens),
            kv_tokens_total=occupancy.cache.num_blocks * occupancy.cache.block_size // occupancy.cache.groups,
            kv_tokens_held=occupancy.blocks_held * occupancy.cache.block_size // occupancy.cache.groups,
            growth_per_sequence=_growth(occupancy),
            mean_sequences=sum(step.sequences * step.tokens for step in self._steps) / tokens if gaps else None,
            mean_itl=sum(gap * count for gap, count in gaps.items()) / tokens if gaps else None,
            written_per_sequence=_written(occupancy) / len(running) if running else 0.0,
            prompt_per_output=_prompt_per_output(occupancy),
        )

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0].ended_at < now - self._seconds:
            self._steps.popleft()


def _prompt_per_output(occupancy: Occupancy) -> float | None:
    """Uncached prompt tokens per output token, of finished requests; None before the first."""
    if not occupancy.mean_output or occupancy.mean_prompt is None:
        return None
    return occupancy.mean_prompt / occupancy.mean_output


def _percentile(gaps: Mapping[float, int], left: float) -> float | None:
    """The smallest gap that at least `left` of the gaps do not exceed."""
    for gap in sorted(gaps):
        left -= gaps[gap]
        if left <= 0:
            return gap
    return None


def _growth(occupancy: Occupancy) -> float:
    """Expected remaining output tokens per running request: the mean output of finished requests minus its own output;
    before any has finished, half of its maximum.
    """
    if not occupancy.running:
        return occupancy.mean_output or 0.0
    expected = 0.0
    for request in occupancy.running:
        left = request.max_tokens - request.generated
        mean = request.max_tokens / 2 if occupancy.mean_output is None else occupancy.mean_output
        more, window = min(left, max(1.0, mean - request.generated)), occupancy.cache.window
        expected += more if window is None else _kept(occupancy, more, max(0, window - request.computed))
    return expected / len(occupancy.running)


def _written(occupancy: Occupancy) -> float:
    """Output tokens of the running requests with KV in memory."""
    window = occupancy.cache.window
    if window is None:
        return sum(request.generated for request in occupancy.running)
    return sum(_kept(occupancy, request.generated, window) for request in occupancy.running)


def _kept(occupancy: Occupancy, tokens: float, seen: int) -> float:
    """The tokens of `tokens` whose KV stays in memory: groups with a sliding window keep at most `seen` of them."""
    groups, sliding = occupancy.cache.groups, occupancy.cache.sliding
    return (tokens * (groups - sliding) + min(tokens, seen) * sliding) / groups
