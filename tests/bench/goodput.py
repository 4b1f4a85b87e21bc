"""`python -m tests.bench.goodput`: what policies, chunks and admission are worth, in virtual time.

Two comparisons, three seeds each, on `virtual.py`'s engine: goodput of edf with latency-driven chunks and predicted
admission against fcfs with its best fixed chunk, at the load where that one falls to 70 %; and preemptions with and
without predicted admission in a pool that is too small. A table, .out/goodput.json, exit code 0 only if every bar is
met. No processor matters to the result: it is the same on each machine.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from sluice_law.steptime import StepTimeModel
from tests.bench.virtual import Result, System, arrivals, run, step_model

OUT = Path(".out")
SEEDS = (1, 2, 3)
REQUESTS = 600
CHUNKS = (128, 256, 512, 1024, 2048, 4096)
FALLEN_TO = 0.70
BRACKET, NEAR = (3.0, 5.0), 0.05  # requests per second
LEAST_RATIO = 1.3
SMALL_POOL, SMALL_RATE = 800, 3.0  # blocks; requests per second, more than the pool can hold
LEAST_PREEMPTED = 0.10
MOST_PREEMPTIONS = 1 / 5
SAME_THROUGHPUT = 0.03

OURS = System("edf, chunks by latency", "edf", 2048, True, True)
ABLATIONS = (
    replace(OURS, name="the same, but fcfs", policy="fcfs"),
    replace(OURS, name="the same, but fair", policy="fair"),
    replace(OURS, name="the same, but srpf", policy="srpf"),
    replace(OURS, name="the same, but with fixed chunks of 512", latency_driven=False, chunk=512),
    replace(OURS, name="the same, but with optimistic admission", predicted_admission=False),
)


def fixed(chunk: int) -> System:
    """Plain first come, first served with one chunk size for ever."""
    return System(f"fcfs, chunks of {chunk}", "fcfs", chunk, False, False, tells_slo=False)


def runs(system: System, model: StepTimeModel, rate: float, seeds: Sequence[int] = SEEDS) -> list[Result]:
    """One run for each seed; every system sees the same requests."""
    return [run(system, model, arrivals(REQUESTS, rate, seed)) for seed in seeds]


def goodput(results: Sequence[Result]) -> float:
    """Mean over seeds."""
    return mean(result.goodput for result in results)


def fallen(model: StepTimeModel) -> tuple[float, System]:
    """The load at which the best fixed chunk has fallen to 70 %, and that chunk."""
    low, high, best = *BRACKET, fixed(CHUNKS[-1])
    while high - low > NEAR:
        rate = (low + high) / 2
        shares = {chunk: goodput(runs(fixed(chunk), model, rate)) for chunk in CHUNKS}
        chunk = max(shares, key=shares.__getitem__)
        best = fixed(chunk)
        low, high = (rate, high) if shares[chunk] > FALLEN_TO else (low, rate)
    return high, best


def main() -> int:
    """Compare, show, write; the exit code."""
    OUT.mkdir(exist_ok=True)
    console, model = Console(), step_model()
    rate, best = fallen(model)
    systems = (*map(fixed, CHUNKS), OURS, *ABLATIONS)
    rows = {system.name: runs(system, model, rate) for system in systems}
    ratio = goodput(rows[OURS.name]) / goodput(rows[best.name])
    small = replace(fixed(2048), name="optimistic", blocks=SMALL_POOL)
    optimistic = runs(small, model, SMALL_RATE)
    predicted = runs(replace(small, name="predicted", predicted_admission=True), model, SMALL_RATE)
    shares = [sum(r.preempted for r in each) / (REQUESTS * len(SEEDS)) for each in (optimistic, predicted)]
    counts = [sum(r.preemptions for r in each) for each in (optimistic, predicted)]
    speeds = [mean(r.tokens_per_second for r in each) for each in (optimistic, predicted)]
    bars = {
        f"goodput ≥ {LEAST_RATIO:g} × fcfs with its best fixed chunk": ratio >= LEAST_RATIO,
        f"the small pool preempts ≥ {LEAST_PREEMPTED:.0%} of requests": shares[0] >= LEAST_PREEMPTED,
        "predicted admission preempts ≤ 1/5 as often": counts[1] <= MOST_PREEMPTIONS * counts[0],
        f"at equal throughput ± {SAME_THROUGHPUT:.0%}": abs(speeds[1] / speeds[0] - 1) <= SAME_THROUGHPUT,
    }
    console.print(_table(rows, rate, ratio))
    _pools(console, {"optimistic": optimistic, "predicted": predicted})
    for bar, met in bars.items():
        console.print(f"{bar}: {'yes' if met else 'NO'}", highlight=False)
    found = {
        "model": asdict(model),
        "rate": rate,
        "ratio": ratio,
        "bars": bars,
        "goodput": {name: [asdict(result) for result in results] for name, results in rows.items()},
        "small_pool": {"optimistic": [asdict(r) for r in optimistic], "predicted": [asdict(r) for r in predicted]},
    }
    (OUT / "goodput.json").write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(bars.values()) else 1


def _table(rows: dict[str, list[Result]], rate: float, ratio: float) -> Table:
    table = Table(title=f"goodput at {rate:.2f} requests/s, {REQUESTS} requests, seeds {SEEDS}")
    table.add_column("system", style="cyan")
    for heading in ("goodput", "each seed", "refused", "late first", "slow tokens"):
        table.add_column(heading, justify="right")
    for name, results in rows.items():
        table.add_row(
            name,
            f"{goodput(results):.1%}",
            " ".join(f"{result.goodput:.1%}" for result in results),
            *(f"{sum(getattr(r, key) for r in results)}" for key in ("refused", "missed_ttft", "missed_itl")),
        )
    table.caption = f"ratio to the best fixed chunk {ratio:.2f}"
    return table


def _pools(console: Console, rows: dict[str, list[Result]]) -> None:
    table = Table(title=f"a pool of {SMALL_POOL} blocks, fcfs, {SMALL_RATE:g} requests/s")
    table.add_column("admission", style="cyan")
    for heading in ("preemptions", "requests preempted", "tokens/s"):
        table.add_column(heading, justify="right")
    for name, results in rows.items():
        table.add_row(
            name,
            " ".join(str(result.preemptions) for result in results),
            " ".join(f"{result.preempted / result.requests:.1%}" for result in results),
            " ".join(f"{result.tokens_per_second:.0f}" for result in results),
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
