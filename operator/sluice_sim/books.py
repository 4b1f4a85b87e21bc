"""What one simulated engine publishes: the contract's counters, gauges and histograms, as a scrape's text.

The text goes through the operator's own parser, so that decide() sees here what it sees in a cluster.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from sluice import contract
from sluice_engine.admission import Limits
from sluice_engine.scheduler import Scheduler
from sluice_law.steptime import StepTimeModel


@dataclass(slots=True)
class LatencyHistogram:
    """Counts per bucket of the contract, not cumulative."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(contract.LATENCY_BUCKETS) + 1))
    total: float = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count one value `times` times."""
        self.counts[bisect_left(contract.LATENCY_BUCKETS, seconds)] += times
        self.total += seconds * times

    def lines(self, name: str) -> Iterable[str]:
        """The series of the exposition format."""
        bounds = [f"{bound:g}" for bound in contract.LATENCY_BUCKETS] + ["+Inf"]
        for bound, count in zip(bounds, accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_count {sum(self.counts)}"
        yield f"{name}_sum {self.total!r}"


@dataclass(slots=True)
class Books:
    """Totals since the engine started."""

    arrived: int = 0
    finished: int = 0
    rejected: int = 0
    met: int = 0
    missed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0
    block_seconds: float = 0.0
    busy_seconds: float = 0.0
    steps: int = 0
    ttft: LatencyHistogram = field(default_factory=LatencyHistogram)
    itl: LatencyHistogram = field(default_factory=LatencyHistogram)

    def render(self, scheduler: Scheduler, limits: Limits, model: StepTimeModel) -> str:
        """The scrape. The profile stands where an engine publishes its own fit; its steps are the engine's."""
        pool, bounds = scheduler.pool, limits.bounds
        gauges = {
            contract.REQUESTS_RUNNING: len(scheduler.running),
            contract.REQUESTS_WAITING: len(scheduler.waiting),
            contract.TOKENS_IN_FLIGHT: scheduler.tokens_in_flight,
            contract.KV_OCCUPANCY_RATIO: pool.held / pool.num_blocks,
            contract.REQUESTS_ARRIVED: self.arrived,
            f'{contract.REQUESTS}{{outcome="length"}}': self.finished,
            f'{contract.REJECTIONS}{{reason="queue_full"}}': self.rejected,
            f'{contract.SLO_REQUESTS}{{result="met"}}': self.met,
            f'{contract.SLO_REQUESTS}{{result="missed_both"}}': self.missed,
            contract.PROMPT_TOKENS_TOTAL: self.prompt_tokens,
            contract.CACHED_PROMPT_TOKENS: self.cached_tokens,
            contract.GENERATED_TOKENS: self.generated,
            contract.KV_BLOCK_SECONDS: self.block_seconds,
            contract.BUSY_SECONDS: self.busy_seconds,
            contract.PREEMPTIONS: scheduler.preemptions,
            contract.STEP_MODEL_STEPS: self.steps,
            contract.STEP_MODEL_ERROR: 0.0,
        }
        for kind, value in zip(
            contract.LIMIT_KINDS,
            (
                limits.concurrency,
                bounds.concurrency_min,
                bounds.concurrency_max,
                bounds.max_queue,
                bounds.max_batched_tokens,
            ),
            strict=True,
        ):
            gauges[f'{contract.ADMISSION_LIMIT}{{kind="{kind}"}}'] = value
        for state, blocks in zip(contract.KV_STATES, (pool.held, pool.cached, pool.free), strict=True):
            gauges[f'{contract.KV_BLOCKS}{{state="{state}"}}'] = blocks
        for term in contract.STEP_MODEL_TERMS:
            gauges[f'{contract.STEP_MODEL_SECONDS}{{term="{term}"}}'] = getattr(model, term)
        info = f'{contract.CACHE_CONFIG_INFO}{{block_size="{pool.block_size}",num_blocks="{pool.num_blocks}"}} 1'
        lines = [info, *(f"{name} {value!r}" for name, value in gauges.items())]
        lines += self.ttft.lines(contract.TIME_TO_FIRST_TOKEN)
        lines += self.itl.lines(contract.INTER_TOKEN_LATENCY)
        return "\n".join(lines) + "\n"
