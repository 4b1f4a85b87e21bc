"""The metrics of one simulated engine: the contract's counters, gauges and histograms in the exposition format.

The operator's own parser reads the text, so decide() gets the same input as in a cluster. Coarse engines are scraped
too often for text: `sample` builds the parsed result directly (tests/sim checks that the two are equal).
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Final

from sluice import contract
from sluice_engine.control.limit_controller import LimitController
from sluice_operator.autoscaler.values import EngineSample, Histogram, ShadowTotals
from sluice_perfmodel.shadow_queues import LOAD_NAMES, ShadowQueues
from sluice_perfmodel.step_time import StepTimeModel

BUCKETS: Final = (*contract.LATENCY_BUCKETS, inf)


@dataclass(slots=True)
class LatencyHistogram:
    """Counts per bucket of the contract, not cumulative. `total` is the sum of the values in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    total: float = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count one value `times` times."""
        self.counts[bisect_left(contract.LATENCY_BUCKETS, seconds)] += times
        self.total += seconds * times

    def observe_ramp(self, first: float, growth: float, count: int, times: int) -> None:
        """Count the `count` values first, first + growth, … (seconds), each `times` times."""
        last = first + (count - 1) * growth
        bucket = bisect_left(contract.LATENCY_BUCKETS, first)
        if bucket != bisect_left(contract.LATENCY_BUCKETS, last):
            for index in range(count):
                self.observe(first + index * growth, times)
            return
        self.counts[bucket] += times * count
        self.total += (first + last) / 2.0 * (times * count)

    def lines(self, name: str) -> Iterable[str]:
        """The histogram's lines in the exposition format."""
        bounds = [f"{bound:g}" for bound in contract.LATENCY_BUCKETS] + ["+Inf"]
        for bound, count in zip(bounds, accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_count {sum(self.counts)}"
        yield f"{name}_sum {self.total!r}"

    def histogram(self) -> Histogram:
        """The histogram as the operator's parser returns it."""
        return Histogram(bounds=BUCKETS, counts=tuple(float(c) for c in accumulate(self.counts)), sum=self.total)


@dataclass(frozen=True, slots=True)
class EngineState:
    """The state of an engine at one instant, from which its gauges are rendered.

    `held`, `cached` and `blocks` count blocks of the KV cache; `model` is the published step-time model."""

    running: int
    waiting: int
    tokens_in_flight: int
    held: int
    cached: int
    blocks: int
    block_size: int
    preemptions: int
    limits: LimitController
    model: StepTimeModel
    shadow: ShadowTotals

    def admission(self) -> tuple[int, ...]:
        """The limits in force, in the order of contract.LIMIT_KINDS."""
        bounds = self.limits.current
        return (
            self.limits.concurrency,
            bounds.concurrency_min,
            bounds.concurrency_max,
            bounds.max_queue,
            bounds.max_batched_tokens,
        )


def shadow_totals(queues: ShadowQueues) -> ShadowTotals:
    """The counters of an engine's shadow queues."""
    return ShadowTotals(float(queues.arrived), float(queues.unreachable), tuple(queues.late))


@dataclass(slots=True)
class EngineCounters:
    """The engine's counters: totals since its start."""

    arrived: int = 0
    offered_again: int = 0  # requests that another replica rejected, evicted or lost before
    finished: int = 0
    rejected: int = 0
    slo_met: int = 0
    slo_missed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0
    block_seconds: float = 0.0
    busy_seconds: float = 0.0
    steps: int = 0
    ttft: LatencyHistogram = field(default_factory=LatencyHistogram)
    itl: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add_steps(self, span: float, steps: int, held: int, generated: int) -> None:
        """Add `steps` steps that took `span` seconds in all, with `held` blocks, and generated `generated` tokens."""
        self.steps += steps
        self.busy_seconds += span
        self.block_seconds += span * held
        self.generated += generated

    def count_finished(self, good: bool) -> None:
        """Count a finished request; `good` is True if it met its SLO targets."""
        self.finished += 1
        if good:
            self.slo_met += 1
        else:
            self.slo_missed += 1

    def render(self, state: EngineState) -> str:
        """The text of one scrape. The published model replaces the engine's own fit; its step count is the engine's."""
        gauges = {
            contract.REQUESTS_RUNNING: state.running,
            contract.REQUESTS_WAITING: state.waiting,
            contract.TOKENS_IN_FLIGHT: state.tokens_in_flight,
            contract.KV_OCCUPANCY_RATIO: state.held / state.blocks,
            contract.REQUESTS_ARRIVED: self.arrived,
            contract.REQUESTS_OFFERED_AGAIN: self.offered_again,
            f'{contract.REQUESTS}{{outcome="length"}}': self.finished,
            f'{contract.REJECTIONS}{{reason="queue_full"}}': self.rejected,
            f'{contract.SLO_REQUESTS}{{result="met"}}': self.slo_met,
            f'{contract.SLO_REQUESTS}{{result="missed_both"}}': self.slo_missed,
            contract.PROMPT_TOKENS_TOTAL: self.prompt_tokens,
            contract.CACHED_PROMPT_TOKENS: self.cached_tokens,
            contract.GENERATED_TOKENS: self.generated,
            contract.KV_BLOCK_SECONDS: self.block_seconds,
            contract.BUSY_SECONDS: self.busy_seconds,
            contract.PREEMPTIONS: state.preemptions,
            contract.SHADOW_REQUESTS: state.shadow.requests,
            contract.SHADOW_UNREACHABLE: state.shadow.unreachable,
            contract.STEP_MODEL_STEPS: self.steps,
            contract.STEP_MODEL_ERROR: 0.0,
        }
        for kind, value in zip(contract.LIMIT_KINDS, state.admission(), strict=True):
            gauges[f'{contract.ADMISSION_LIMIT}{{kind="{kind}"}}'] = value
        for name, late in zip(LOAD_NAMES, state.shadow.late, strict=True):
            gauges[f'{contract.SHADOW_LATE}{{load="{name}"}}'] = late
        states = (state.held, state.cached, state.blocks - state.held - state.cached)
        for block_state, blocks in zip(contract.KV_STATES, states, strict=True):
            gauges[f'{contract.KV_BLOCKS}{{state="{block_state}"}}'] = blocks
        for term in contract.STEP_MODEL_TERMS:
            gauges[f'{contract.STEP_MODEL_SECONDS}{{term="{term}"}}'] = getattr(state.model, term)
        info = f'{contract.CACHE_CONFIG_INFO}{{block_size="{state.block_size}",num_blocks="{state.blocks}"}} 1'
        lines = [info, *(f"{name} {value!r}" for name, value in gauges.items())]
        lines += self.ttft.lines(contract.TIME_TO_FIRST_TOKEN)
        lines += self.itl.lines(contract.INTER_TOKEN_LATENCY)
        return "\n".join(lines) + "\n"

    def sample(self, state: EngineState) -> EngineSample:
        """The sample that the operator's parser would return for `render`."""
        concurrency, least, most, queue, _ = state.admission()
        return EngineSample(
            running=float(state.running),
            waiting=float(state.waiting),
            tokens_in_flight=float(state.tokens_in_flight),
            kv_occupancy=state.held / state.blocks,
            kv_blocks=float(state.blocks),
            block_size=float(state.block_size),
            concurrency=float(concurrency),
            concurrency_min=float(least),
            concurrency_max=float(most),
            queue_limit=float(queue),
            arrived_total=float(self.arrived),
            finished_total=float(self.finished),
            rejected_total=float(self.rejected),
            slo_met_total=float(self.slo_met),
            slo_missed_total=float(self.slo_missed),
            prompt_tokens_total=float(self.prompt_tokens),
            cached_prompt_tokens_total=float(self.cached_tokens),
            generated_tokens_total=float(self.generated),
            kv_block_seconds_total=self.block_seconds,
            ttft=self.ttft.histogram(),
            itl=self.itl.histogram(),
            step_model=replace(state.model, steps=self.steps, error_ratio=0.0) if self.steps else None,
            offered_again_total=float(self.offered_again),
            shadow=state.shadow,
        )
