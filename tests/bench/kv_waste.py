"""KV memory that is allocated but not used, on real lengths through the real scheduler."""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

from sluice_engine.admission import Bounds, Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig

LENGTHS = Path(__file__).parent.parent / "data" / "azure2023_conv_2000.csv.gz"
CONCURRENCY = 64
BLOCK_SIZE = 16
MOST_PERCENT = 4.0


@dataclass(frozen=True, slots=True)
class Waste:
    """Token places over all steps: allocated in blocks, and holding a computed token."""

    requests: int
    steps: int
    allocated: int
    used: int
    worst_places: int  # most unused places of one sequence after any step; a block has 16

    @property
    def percent(self) -> float:
        """Share of allocated places that held nothing."""
        return 100 * (self.allocated - self.used) / self.allocated


def measure(requests: int = 300) -> Waste:
    """Run the first `requests` lengths of the trace, 64 at a time, and look after every step."""
    with gzip.open(LENGTHS, "rt") as lines:
        lengths = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(lines)]
    config = SchedulerConfig(
        num_blocks=8192, block_size=BLOCK_SIZE, max_model_length=8192, max_num_seqs=CONCURRENCY, prefix_cache=False
    )
    bounds = Bounds(concurrency_max=CONCURRENCY, max_queue=requests, max_batched_tokens=2048)
    scheduler = Scheduler(config, Limits(bounds))
    for index, (context, generated) in enumerate(lengths[:requests]):
        scheduler.submit(Request(str(index), [0] * context, generated, 0.0))
    steps = allocated = used = worst = 0
    while (plan := scheduler.plan(0.0)) is not None:
        scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), 0.0)
        scheduler.check()
        steps += 1
        for request in scheduler.running:
            places = len(request.blocks) * config.block_size
            allocated += places
            used += request.computed
            worst = max(worst, places - request.computed)
    return Waste(requests, steps, allocated, used, worst)
