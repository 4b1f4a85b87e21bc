"""Goodput of policies and latency-driven chunks in virtual time, compared with fcfs and its best fixed chunk.

It runs on the engine of `virtual.py`, at the load where the best fixed chunk has fallen to 70 %. No constant of the
engine was chosen on these lengths and seeds. The result does not depend on the processor.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

from sluice_perfmodel.step_time import StepTimeModel
from tests.bench.report import figure
from tests.bench.report.row import Report, Row, at_least
from tests.bench.scheduling.virtual import HELD_OUT, Result, System, arrivals, run, step_model

SEEDS = (4, 5, 6)
REQUESTS = 600
CHUNKS = (128, 256, 512, 1024, 2048, 4096)
FALLEN_TO = 0.70
BRACKET, NEAR = (4.0, 8.0), 0.05  # requests per second
LEAST_RATIO = 1.3

OURS = System("edf, chunks by latency", "edf", 2048, True, True)
ABLATIONS = (
    replace(OURS, name="the same, but fcfs", policy="fcfs"),
    replace(OURS, name="the same, but fair", policy="fair"),
    replace(OURS, name="the same, but srpf", policy="srpf"),
    replace(OURS, name="the same, but priority", policy="priority"),
    replace(OURS, name="the same, but fixed chunks of 512", latency_driven=False, chunk=512),
    replace(OURS, name="the same, but optimistic admission", predicted_admission=False),
)


def fixed(chunk: int) -> System:
    """Plain fcfs with a fixed chunk size."""
    return System(f"fcfs, chunks of {chunk}", "fcfs", chunk, False, False, tells_slo=False)


def runs(system: System, model: StepTimeModel, rate: float, seeds: Sequence[int] = SEEDS) -> list[Result]:
    """One run per seed; every system gets the same requests."""
    return [run(system, model, arrivals(REQUESTS, rate, seed, HELD_OUT)) for seed in seeds]


def goodput(results: Sequence[Result]) -> float:
    """Mean over seeds."""
    return mean(result.goodput for result in results)


def fallen(model: StepTimeModel) -> float:
    """The load at which the best fixed chunk has fallen to 70 %, requests per second.

    Raises RuntimeError if it is outside BRACKET.
    """
    low, high = BRACKET
    while high - low > NEAR:
        rate = (low + high) / 2
        best = max(goodput(runs(fixed(chunk), model, rate)) for chunk in CHUNKS)
        low, high = (rate, high) if best > FALLEN_TO else (low, rate)
    if high == BRACKET[1] or low == BRACKET[0]:
        raise RuntimeError(f"the load where goodput falls to {FALLEN_TO:.0%} is not within {BRACKET} requests/s")
    return high


def report(out: Path, say: Callable[[str], None]) -> Report:
    """A row for each system, and the ratio."""
    model = step_model()
    say("the load where the best fixed chunk falls to 70 %")
    rate = fallen(model)
    found: dict[str, list[Result]] = {}
    for system in (*map(fixed, CHUNKS), OURS, *ABLATIONS):
        say(system.name)
        found[system.name] = runs(system, model, rate)
    best = max(map(fixed, CHUNKS), key=lambda system: goodput(found[system.name]))
    ratio = goodput(found[OURS.name]) / goodput(found[best.name])
    title = f"goodput at {rate:.2f} requests/s"
    rows = [Row(f"{title}, {name}", _each(results)) for name, results in found.items()]
    rows.append(at_least(f"{OURS.name} / {best.name}, the best fixed", ratio, LEAST_RATIO, " ×"))
    data = {
        "model": asdict(model),
        "rate": rate,
        "ratio": ratio,
        "seeds": SEEDS,
        "goodput": {name: [asdict(result) for result in results] for name, results in found.items()},
    }
    return Report(rows, data, [_draw(found, rate, best, out / "goodput.png")])


def _each(results: Sequence[Result]) -> str:
    seeds = ", ".join(f"{result.goodput:.1%}" for result in results)
    refused, late, slow = (sum(getattr(r, key) for r in results) for key in ("refused", "missed_ttft", "missed_itl"))
    return f"{goodput(results):.1%} ({seeds}); {refused} refused, {late} late, {slow} slow"


def _draw(found: dict[str, list[Result]], rate: float, best: System, to: Path) -> Path:
    title = f"Goodput at {rate:.2f} requests/s: half want 500 ms / 40 ms, half 5 s / 150 ms (Llama 3.1 8B, 2 × A100)"
    with figure.drawing(title, to, on_processor=False) as axes:
        names = list(found)[::-1]
        shares = [100 * goodput(found[name]) for name in names]
        colours = [figure.OURS if name == OURS.name else figure.PEER for name in names]
        axes.barh(names, shares, color=colours)
        for place, name in enumerate(names):
            axes.plot([100 * r.goodput for r in found[name]], [place] * len(found[name]), "o", c=figure.DOT, ms=3)
            axes.text(1, place, f"{shares[place]:.1f} %", va="center", fontsize=8)
        bar = 100 * LEAST_RATIO * goodput(found[best.name])
        axes.axvline(bar, color=figure.TARGET, lw=1, label=f"{LEAST_RATIO:g} × the best fixed chunk")
        axes.set_xlabel("% of requests offered that met both targets (mean; dots: seeds)")
        axes.legend(fontsize=8, loc="upper right")
    return to
