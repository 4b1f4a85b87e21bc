"""KV memory that is allocated but not used, with real lengths through the real scheduler."""

import csv
import gzip
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from tests.bench.report import figure
from tests.bench.report.row import Report, at_most

LENGTHS = Path(__file__).parents[3] / "operator" / "sluice_sim" / "data" / "azure2023_conv.csv.gz"
CONCURRENCY = 64
BLOCK_SIZE = 16
MOST_PERCENT = 4.0
CHECKED_EVERY = 256  # steps between two checks and between two points of the plot; a check costs as much as a step


@dataclass(frozen=True, slots=True)
class Waste:
    """Token slots over all steps: allocated in blocks, and filled with a computed token."""

    requests: int
    steps: int
    allocated: int
    used: int
    over_time: tuple[float, ...]  # per cent, every CHECKED_EVERY steps
    worst_places: int  # most unused slots of one sequence after any step; a block has 16

    @property
    def percent(self) -> float:
        """Share of the allocated slots that are not used."""
        return 100 * (self.allocated - self.used) / self.allocated


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows for the whole trace."""
    say("every request of azure2023_conv through the scheduler (about a minute)")
    waste = measure()
    where = f"azure2023_conv, {waste.requests:,} requests, {waste.steps:,} steps"
    rows = [
        at_most(f"KV waste: {where}", waste.percent, MOST_PERCENT, " %"),
        at_most("most unused places of one sequence, ever", waste.worst_places, BLOCK_SIZE - 1, " tokens"),
    ]
    return Report(rows, {**asdict(waste), "percent": waste.percent}, [_draw(waste, out / "kv-waste.png")])


def _draw(waste: Waste, to: Path) -> Path:
    title = f"KV places allocated and not used: azure2023_conv, {waste.requests:,} requests, {CONCURRENCY} at a time"
    with figure.drawing(title, to, on_processor=False) as axes:
        steps = [CHECKED_EVERY * number for number in range(1, len(waste.over_time) + 1)]
        axes.plot(
            steps, waste.over_time, color=figure.OURS, lw=1, label=f"after a step; {waste.percent:.2f} % over all"
        )
        axes.axhline(MOST_PERCENT, color=figure.TARGET, lw=1, label=f"{MOST_PERCENT:g} % at most")
        axes.set_xlabel("step")
        axes.set_ylabel(f"% of allocated places (blocks of {BLOCK_SIZE} tokens)")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)
    return to


def measure(requests: int | None = None) -> Waste:
    """Run the first `requests` lengths of the trace, or all, 64 at a time, and measure after every step."""
    with gzip.open(LENGTHS, "rt") as lines:
        lengths = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(lines)]
    config = SchedulerConfig(
        num_blocks=8192, block_size=BLOCK_SIZE, max_model_length=16384, max_num_seqs=CONCURRENCY, prefix_cache=False
    )
    bounds = Limits(concurrency_max=CONCURRENCY, max_queue=len(lengths), max_batched_tokens=2048)
    scheduler = Scheduler(config, LimitController(bounds))
    lengths = lengths[:requests]
    for index, (context, generated) in enumerate(lengths):
        refused = scheduler.submit(Request(str(index), [0] * context, generated, 0.0))
        if refused is not None:
            raise RuntimeError(f"row {index} of the trace was refused: {refused.message}")
    steps = allocated = used = worst = 0
    over_time: list[float] = []
    while (plan := scheduler.plan(0.0)) is not None:
        scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), 0.0)
        steps += 1
        held = sum(len(request.blocks) for request in scheduler.running) * config.block_size
        computed = sum(request.computed for request in scheduler.running)
        for request in scheduler.running:
            worst = max(worst, len(request.blocks) * config.block_size - request.computed)
        allocated += held
        used += computed
        if steps % CHECKED_EVERY == 0:
            scheduler.check()
            over_time.append(100 * (held - computed) / max(1, held))
    return Waste(len(lengths), steps, allocated, used, tuple(over_time), worst)
