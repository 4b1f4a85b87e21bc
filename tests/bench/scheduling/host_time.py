"""Host time of a step outside the model: planning, preparing tensors, settling, with the real scheduler and builder.

`python -m tests.bench.scheduling.host_time` prints one line. 256 requests decode; the tokens are made up, and nothing is computed.
Prompts have the lengths of engine_load_64. The worst case is recorded too: prompts of one length, so that all streams
fill a block in the same step.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sluice_engine.backend.batch_builder import BatchBuilder
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_perfmodel.step_time import StepTimeModel
from tests.bench.report import figure
from tests.bench.report.row import Report, Row, at_most
from tests.bench.throughput.load import read

MOST_P50_MS, MOST_P99_MS, MOST_QUEUE_RATIO = 1.0, 2.0, 1.1
LENGTH = 2048
MODEL = StepTimeModel(base=0.01, prefill_token=4e-5, prefill_context=6e-9, sequence=1e-5, kv_token=1e-7, steps=1000)


@dataclass(frozen=True, slots=True)
class HostTime:
    """Seconds of host time per step, and the ratio of the medians with and without a long queue."""

    p50: float
    p99: float
    queue_ratio: float
    in_step: float = 0.0  # p99 if all streams fill their blocks in the same step
    times: tuple[float, ...] = ()  # of each step without a queue
    behind: tuple[float, ...] = ()  # of each step with a queue


class Host:
    """`running` decoding requests and `waiting` queued ones, with the given prompt lengths in turn and no model."""

    def __init__(self, running: int, waiting: int, lengths: Sequence[int]) -> None:
        config = SchedulerConfig(num_blocks=running * LENGTH // 16, max_num_seqs=running, max_model_length=LENGTH)
        bounds = Limits(concurrency_max=running, max_queue=waiting + running, max_batched_tokens=8192)
        self._scheduler = Scheduler(config, LimitController(bounds))
        self._batch_builder = BatchBuilder(
            max_num_seqs=running,
            max_model_length=LENGTH,
            block_size=16,
            null_block=config.num_blocks,
            device=torch.device("cpu"),
        )
        for index in range(running + waiting):
            known = [index] * lengths[index % len(lengths)]
            self._scheduler.submit(Request(str(index), known, LENGTH - 64, 0.0))
        while len(self._scheduler.running) < running or any(r.remaining > 1 for r in self._scheduler.running):
            self.step()

    def step(self) -> float:
        """Run one step; returns its seconds."""
        begun = time.perf_counter()
        plan = self._scheduler.plan(0.0, MODEL)
        if plan is None:
            raise RuntimeError("nothing decodes any more: measure fewer steps")
        self._batch_builder.install(plan.rows)
        self._batch_builder.batch(self._batch_builder.gather(plan.rows))
        self._scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), 0.0)
        return time.perf_counter() - begun


def measure(running: int = 256, waiting: int = 10_000, steps: int = 400) -> HostTime:
    """Measure all three hosts in turns, so that other load on the machine slows them alike."""
    drawn = [len(prompt) for prompt in read("engine_load_64").prompts]
    plain, queued, together = Host(running, 0, drawn), Host(running, waiting, drawn), Host(running, 0, [40])
    gc.collect()
    gc.freeze()  # as the engine does after its start
    times: list[float] = []
    behind: list[float] = []
    in_step: list[float] = []
    for _ in range(steps):
        times.append(plain.step())
        behind.append(queued.step())
        in_step.append(together.step())
    p50, ratio = statistics.median(times), statistics.median(behind) / statistics.median(times)
    return HostTime(p50, _p99(times), ratio, _p99(in_step), tuple(times), tuple(behind))


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(0.99 * len(times))]


def report(out: Path, say: Callable[[str], None]) -> Report:
    """Rows and plot for `make bench`."""
    say("256 running requests, without and with 10,000 waiting ones")
    found = measure()
    rows = [
        at_most("planning, preparing and settling, 256 running, p50", 1e3 * found.p50, MOST_P50_MS, " ms"),
        at_most("the same, p99", 1e3 * found.p99, MOST_P99_MS, " ms"),
        Row("p99 where all 256 fill a block in the same step", f"{1e3 * found.in_step:.2f} ms"),
        at_most("the same with 10,000 waiting / without, p50", found.queue_ratio, MOST_QUEUE_RATIO, " ×"),
    ]
    data = {"p50": found.p50, "p99": found.p99, "in_step_p99": found.in_step, "queue_ratio": found.queue_ratio}
    return Report(rows, data, [_draw(found, out / "host-time.png")])


def _draw(found: HostTime, to: Path) -> Path:
    with figure.drawing("Host time per step: planning, preparing tensors, settling; 256 requests decode", to) as axes:
        for name, times, colour in (
            ("nobody waits", found.times, figure.OURS),
            ("10,000 wait", found.behind, figure.DOT),
        ):
            ordered = sorted(1e3 * seconds for seconds in times)
            shares = [100 * (number + 1) / len(ordered) for number in range(len(ordered))]
            axes.plot(ordered, shares, color=colour, label=name)
        axes.axvline(MOST_P50_MS, color=figure.TARGET, lw=1, label="p50 at most")
        axes.axvline(MOST_P99_MS, color=figure.TARGET, lw=1, ls=":", label="p99 at most")
        axes.set_xscale("log")
        axes.set_xlabel("milliseconds")
        axes.set_ylabel("% of steps that took no longer")
        axes.legend(fontsize=8, loc="lower right")
    return to


def main() -> int:
    """Print one line."""
    found = measure()
    sys.stdout.write(
        f"host time per step, 256 running: p50 {1e3 * found.p50:.2f} ms, p99 {1e3 * found.p99:.2f} ms "
        f"({1e3 * found.in_step:.2f} ms where blocks fill together); "
        f"with 10,000 waiting {found.queue_ratio:.2f} times that\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
