"""Hit ratio of the prefix cache on a real trace, compared with a plain LRU that shares no code with it.

The trace (Mooncake's conversations) has an id for each 512-token block of a prompt. Like a chained hash, the id stands
for the whole prefix. The engine side is the real scheduler and its pool, one request at a time, with these ids as
hashes. The other side is an ordered dictionary of ids.
"""

import gzip
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from tests.bench.report import figure
from tests.bench.report.row import Report, Row

TRACE = Path(__file__).parents[3] / "operator" / "sluice_sim" / "data" / "mooncake_conversation.jsonl.gz"
BLOCK_SIZE = 512  # tokens, as in the trace
CAPACITIES = (0.05, 0.20, 0.50)  # shares of the trace's unique blocks
MOST_APART = 0.02


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of the trace: its tokens and the ids of its blocks; the last block is mostly partly filled."""

    tokens: int
    ids: tuple[int, ...]

    @property
    def full(self) -> tuple[int, ...]:
        """The ids of its full blocks, which a cache of whole blocks can hold."""
        return self.ids[: self.tokens // BLOCK_SIZE]


@dataclass(frozen=True, slots=True)
class HitRatio:
    """Block hits over all the trace's blocks, at one capacity."""

    capacity: float  # share of the unique blocks
    blocks: int
    engine: float
    lru: float  # over full blocks
    lru_of_all_ids: float  # also caches partly filled last blocks, which no engine can do

    @property
    def apart(self) -> float:
        """Relative difference between the engine and the LRU."""
        return abs(self.engine - self.lru) / self.lru


def report(out: Path, say: Callable[[str], None]) -> Report:
    """A row for each capacity."""
    say("the conversations of Mooncake through the prefix cache")
    found = measure()
    rows = [
        Row(
            f"prefix hits, {each.capacity:.0%} of the unique blocks held",
            f"{each.engine:.2%} (an LRU: {each.lru:.2%})",
            f"{MOST_APART:.0%} apart at most",
            each.apart <= MOST_APART,
        )
        for each in found
    ]
    return Report(rows, {"capacities": [asdict(each) for each in found]}, [_draw(found, out / "hit-ratio.png")])


def _draw(found: Sequence[HitRatio], to: Path) -> Path:
    with figure.drawing(
        "Prefix cache hits on Mooncake's conversations (grey: an independent LRU, colour: the engine)",
        to,
        on_processor=False,
    ) as axes:
        for place, each in enumerate(found):
            shares = [100 * each.lru, 100 * each.engine]
            bars = axes.bar([place - 0.2, place + 0.2], shares, width=0.38, color=[figure.PEER, figure.OURS])
            axes.bar_label(bars, fmt="%.2f", fontsize=8)
        axes.set_xticks(range(len(found)), [f"{each.capacity:.0%} of the unique blocks held" for each in found])
        axes.set_ylabel("% of all blocks found")
    return to


def measure(capacities: Sequence[float] = CAPACITIES) -> list[HitRatio]:
    """The whole trace at each capacity; each takes about a second of processor time."""
    with gzip.open(TRACE, "rt") as lines:
        prompts = [Prompt(row["input_length"], tuple(row["hash_ids"])) for row in map(json.loads, lines)]
    unique = len({block for prompt in prompts for block in prompt.ids})
    total = sum(len(prompt.ids) for prompt in prompts)
    found: list[HitRatio] = []
    for share in capacities:
        blocks = int(share * unique)
        found.append(
            HitRatio(
                capacity=share,
                blocks=blocks,
                engine=scheduler_hits(prompts, blocks) / total,
                lru=lru_hits([prompt.full for prompt in prompts], blocks) / total,
                lru_of_all_ids=lru_hits([prompt.ids for prompt in prompts], blocks) / total,
            )
        )
    return found


def lru_hits(prompts: Sequence[Sequence[int]], capacity: int) -> int:
    """Leading ids found in an LRU cache of `capacity` ids; within a prompt the first id is the most recent."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for ids in prompts:
        hits += next((count for count, block in enumerate(ids) if block not in cache), len(ids))
        for block in reversed(ids):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def scheduler_hits(prompts: Sequence[Prompt], capacity: int) -> int:
    """Cached blocks that requests start with in the real scheduler over a pool of `capacity` blocks."""
    longest = max(prompt.tokens for prompt in prompts) + 1
    config = SchedulerConfig(num_blocks=capacity, block_size=BLOCK_SIZE, max_num_seqs=1, max_model_length=longest)
    scheduler = Scheduler(
        config, LimitController(Limits(concurrency_max=1, max_batched_tokens=longest, kv_watermark=1.0))
    )
    hits = 0
    for number, prompt in enumerate(prompts):
        request = Request(str(number), [0] * prompt.tokens, max_tokens=1, arrived_at=0.0)
        request.hashes = [block.to_bytes(8) for block in prompt.full]
        scheduler.submit(request)
        while (plan := scheduler.plan(0.0)) is not None:
            scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), 0.0)
        hits += request.cached_tokens // BLOCK_SIZE
    scheduler.check()
    return hits
