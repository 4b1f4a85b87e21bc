"""How well the simulator predicts the engine on this machine: the same arrivals through both, at three loads.

Each load is served three times by the engine, so that its own spread is known, and each run is predicted by a profile of its
own, fitted from requests of another seed that were served just before it at the same load, for about as long at each
(weighted least squares over all steps, terms non-negative). That is how an engine's own model is learned: from the load that
it has, now. A step of the same work takes a processor that idles two thirds of the time up to a fifth longer than a busy one,
whose caches are warm and whose clock is up, and one that is slower for some minutes is so for both (engine/LOG.md).
The median prediction stands against the median run.

Beside it stands the same prediction by a simulator that is told how slow the machine was in each second of each run, and
then is compared with that run. It decides nothing: it shows whether what is missing is the machine or the model.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sluice_engine.loop import EngineLoop
from sluice_engine.options import EngineOptions
from sluice_engine.steptime import features, solve_non_negative
from sluice_law.steptime import StepTimeModel, StepWork
from sluice_sim.engine import SimEngine
from sluice_sim.record import Record
from sluice_sim.steptimes import Profiled, StepTimes
from sluice_sim.traces import Arrival
from sluice_sim.visit import Visit
from tests.bench.fidelity.drift import Drifting, slowness
from tests.bench.fidelity.timeline import Timeline, serve_all
from tests.bench.throughput.load import VOCABULARY

UTILISATIONS = (0.3, 0.6, 0.8)
REQUESTS, RUNS = 1_000, 3
PLACES = 64
FITS = 4  # each in units of the one before
NO_TARGET = 1e9  # seconds: latency binds nothing, so the limit stays where it is
BARS = {50: 0.10, 99: 0.15}  # of the percentile of time to first token and of mean inter-token time


@dataclass(frozen=True, slots=True)
class Compared:
    """One percentile of one time at one load, run by run: seconds of the engine and of the simulator, which knows nothing
    but the profile; and of the simulator that was told how slow the machine was in each second."""

    utilisation: float
    what: str
    percentile: int
    engine: tuple[float, ...]
    simulated: tuple[float, ...]
    told: tuple[float, ...]

    @property
    def measured(self) -> float:
        """The engine's median run."""
        return statistics.median(self.engine)

    @property
    def predicted(self) -> float:
        """The simulator's median prediction."""
        return statistics.median(self.simulated)

    @property
    def apart(self) -> float:
        """One against the other, relative."""
        return abs(self.predicted - self.measured) / self.measured

    @property
    def bar(self) -> float:
        """What is allowed: for p99 twice the engine's own spread where that is more."""
        return BARS[self.percentile] if self.percentile == 50 else max(BARS[99], 2 * self.spread)

    @property
    def spread(self) -> float:
        """Of the engine's own runs, relative: what nobody could predict."""
        return (max(self.engine) - min(self.engine)) / self.measured

    @property
    def told_apart(self) -> float:
        """The told simulator against the run that it was told of, relative: of the three the furthest."""
        return max(abs(said - run) / run for said, run in zip(self.told, self.engine, strict=True))

    @property
    def met(self) -> bool:
        """Whether the prediction is near enough."""
        return self.apart <= self.bar


class Bench:
    """A real engine with the bench's model."""

    def __init__(self, model: Path) -> None:
        self.engine = EngineLoop(
            EngineOptions(
                model=str(model), served_name="bench", speculation="off", max_num_seqs=PLACES, concurrency_min=PLACES,
                concurrency_max=PLACES, itl_target=NO_TARGET, ttft_target=NO_TARGET, max_model_length=2048,
            )
        )  # fmt: skip
        self._draw = random.Random("prompts")

    def serve(self, arrivals: Sequence[Arrival]) -> Timeline:
        """By the real engine, in real time. No two prompts of a bench are alike: the prefix cache would know them."""
        prompts = [tuple(self._draw.randrange(VOCABULARY) for _ in range(one.prompt)) for one in arrivals]
        timeline = Timeline(arrivals, prompts, time.monotonic, time.sleep, begun=time.monotonic())
        serve_all(self.engine, timeline)
        return timeline

    def simulate(self, arrivals: Sequence[Arrival], times: StepTimes) -> Sequence[Record]:
        """The same arrivals in virtual time."""
        engine = self.engine
        sim = SimEngine(times, engine.scheduler.config, engine.limits.started, 0.0, overlap=True)
        records = []
        for number, one in enumerate(arrivals):
            record = Record(one.at, one.prompt, one.output)
            records.append(record)
            sim.run_until(one.at)
            sim.submit(Visit(number, replace(one, max_tokens=one.output), record))
        sim.run_until(arrivals[-1].at + 1e6)
        return records


def arrivals(rate: float, count: int, seed: int) -> list[Arrival]:
    """Poisson arrivals; prompts log-normal 16 to 256 tokens, outputs log-normal 8 to 64."""
    draw, at, made = random.Random(f"arrivals/{seed}"), 0.0, []
    for _ in range(count):
        at += draw.expovariate(rate)
        prompt = min(max(round(draw.lognormvariate(4.3, 0.7)), 16), 256)
        made.append(Arrival(at, prompt, min(max(round(draw.lognormvariate(3.1, 0.6)), 8), 64)))
    return made


def profile(steps: Sequence[tuple[StepWork, float]]) -> StepTimeModel:
    """Fitted from steps and their seconds, relative errors weighed alike: in units of what the fit before said of each
    step, because weighing by the measured times would learn the lucky ones."""
    units = [seconds for _, seconds in steps]
    for _ in range(FITS):
        model = _fitted(steps, units)
        units = [model.predict(work) for work, _ in steps]
    return model


def measure(
    model: Path, say: Callable[[str], None], requests: int = REQUESTS
) -> tuple[list[Compared], dict[float, list[StepTimeModel]]]:
    """Warm up, find the capacity; then run by run fit a profile on a seed of its own, serve and compare. Also returns the
    profiles of each load."""
    bench = Bench(model)
    say("warming up")
    bench.serve(arrivals(1e4, 200, seed=1))
    say("capacity: 400 requests at once")
    capacity = _rate(bench.serve(arrivals(1e4, 400, seed=2)).records)
    listed = {load: arrivals(load * capacity, requests, seed=4) for load in UTILISATIONS}
    runs: dict[float, list[Timeline]] = {load: [] for load in UTILISATIONS}
    profiles: dict[float, list[StepTimeModel]] = {load: [] for load in UTILISATIONS}
    for run in range(RUNS):
        for load in UTILISATIONS:
            say(f"run {run + 1} of {RUNS}: {requests} requests at {load:g} of {capacity:.1f} requests/s")
            others = arrivals(load * capacity, max(1, round(load * requests)), seed=5 + run)
            profiles[load].append(profile(bench.serve(others).work))
            runs[load].append(bench.serve(listed[load]))
    found: list[Compared] = []
    for load in UTILISATIONS:
        blind, told = [], []
        for served, known in zip(runs[load], profiles[load], strict=True):
            blind.append(bench.simulate(listed[load], Profiled(known)))
            told.append(bench.simulate(listed[load], Drifting(known, slowness(served.begun_steps(), known))))
        found += compare(load, [served.records for served in runs[load]], blind, told)
    return found, profiles


def _fitted(steps: Sequence[tuple[StepWork, float]], units: Sequence[float]) -> StepTimeModel:
    size = len(features(StepWork()))
    matrix = [[0.0] * size for _ in range(size)]
    vector = [0.0] * size
    for (work, seconds), unit in zip(steps, units, strict=True):
        row = [value / unit for value in features(work)]
        for i in range(size):
            vector[i] += row[i] * seconds / unit
            for j in range(size):
                matrix[i][j] += row[i] * row[j]
    base, prefill_token, prefill_context, sequence, kv_token = solve_non_negative(matrix, vector)
    return StepTimeModel(base, prefill_token, prefill_context, sequence, kv_token)


def compare(
    load: float,
    runs: Sequence[Sequence[Record]],
    blind: Sequence[Sequence[Record]],
    told: Sequence[Sequence[Record]],
) -> list[Compared]:
    """p50 and p99 of both times."""
    return [
        Compared(
            load, what, percentile, *(
                tuple(_percentile(run, what, percentile) for run in those) for those in (runs, blind, told)
            ),
        )
        for what in ("ttft", "itl")
        for percentile in BARS
    ]  # fmt: skip


def _percentile(records: Sequence[Record], what: str, percentile: int) -> float:
    times = sorted(value for record in records if (value := record.ttft if what == "ttft" else record.itl) is not None)
    return times[min(len(times) - 1, int(percentile / 100 * len(times)))]


def _rate(records: Sequence[Record]) -> float:
    """Requests per second while all places were taken: between the first tenth of the ends and the ninth."""
    ends = sorted(record.ended_at for record in records if record.ended_at is not None)
    first, last = len(ends) // 10, len(ends) * 9 // 10
    return (last - first) / (ends[last] - ends[first])
