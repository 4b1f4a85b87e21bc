"""Accuracy of the simulator on this machine: the same arrivals through the engine and the simulator, at three loads.

The engine serves each load three times, so that its own spread is known. Each run is predicted with a profile of its
own. The profile is fitted to requests of another seed, served just before the run at the same load and for about the
same time at each load (weighted least squares over all steps, non-negative terms). An engine learns its own model in
the same way: from its current load. A step of the same work takes up to a fifth longer on a processor that idles two
thirds of the time than on a busy one with warm caches and a high clock, and a slow period of some minutes affects both
(engine/LOG.md). The median prediction is compared with the median run.

The report also has a prediction by a simulator that gets the machine's slowness in each second of each run, compared
with that run. It does not count: it separates errors of the machine from errors of the model.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sluice_engine.config import engine_options
from sluice_engine.control.step_time_fit import features, solve_non_negative
from sluice_engine.core.engine import EngineLoop
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Profiled, StepTimes
from sluice_sim.traces import Arrival
from tests.bench.fidelity.drift import Drifting, slowness
from tests.bench.fidelity.timeline import Timeline, serve_all
from tests.bench.throughput.load import VOCABULARY

UTILISATIONS = (0.3, 0.6, 0.8)
REQUESTS, RUNS = 1_000, 3
PLACES = 64
FITS = 4  # fits in sequence, each in units of the previous one
NO_TARGET = 1e9  # seconds: latency is no constraint, so the limit stays constant
BARS = {50: 0.10, 99: 0.15}  # by percentile, of time to first token and of mean inter-token time


@dataclass(frozen=True, slots=True)
class Compared:
    """One percentile of one latency at one load, run by run, in seconds.

    `engine` is measured, `simulated` is predicted from the profile alone, and `told` is predicted with the machine's
    slowness in each second.
    """

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
        """Relative difference between the prediction and the measurement."""
        return abs(self.predicted - self.measured) / self.measured

    @property
    def bar(self) -> float:
        """The allowed difference: for p99 twice the engine's own spread if that is more."""
        return BARS[self.percentile] if self.percentile == 50 else max(BARS[99], 2 * self.spread)

    @property
    def spread(self) -> float:
        """Relative spread of the engine's own runs: the part that cannot be predicted."""
        return (max(self.engine) - min(self.engine)) / self.measured

    @property
    def told_apart(self) -> float:
        """Largest relative difference of the told simulator to its own run, over the three runs."""
        return max(abs(said - run) / run for said, run in zip(self.told, self.engine, strict=True))

    @property
    def met(self) -> bool:
        """True if the prediction is within its bar."""
        return self.apart <= self.bar


class Bench:
    """A real engine with the benchmark's model."""

    def __init__(self, model: Path) -> None:
        self.engine = EngineLoop(
            engine_options(
                model=str(model), served_name="bench", speculation="off", max_num_seqs=PLACES, concurrency_min=PLACES,
                concurrency_max=PLACES, itl_target=NO_TARGET, ttft_target=NO_TARGET, max_model_length=2048,
            )
        )  # fmt: skip
        self._draw = random.Random("prompts")

    def serve(self, arrivals: Sequence[Arrival]) -> Timeline:
        """Serve the arrivals with the real engine in real time.

        All prompts of a bench differ, so the prefix cache never hits.
        """
        prompts = [tuple(self._draw.randrange(VOCABULARY) for _ in range(one.prompt)) for one in arrivals]
        timeline = Timeline(arrivals, prompts, time.monotonic, time.sleep, begun=time.monotonic())
        serve_all(self.engine, timeline)
        return timeline

    def simulate(self, arrivals: Sequence[Arrival], times: StepTimes) -> Sequence[RequestRecord]:
        """Simulate the same arrivals in virtual time."""
        engine = self.engine
        sim = SimEngine(times, engine.scheduler.config, engine.limits.base, 0.0, overlap=True)
        records = []
        for number, one in enumerate(arrivals):
            record = RequestRecord(one.at, one.prompt, one.output)
            records.append(record)
            sim.run_until(one.at)
            sim.submit(OfferedRequest(number, replace(one, max_tokens=one.output), record))
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
    """A profile fitted to steps and their seconds, with relative errors weighted equally.

    The unit of each step is the previous fit's prediction; weighting by the measured times would favour short outliers.
    """
    units = [seconds for _, seconds in steps]
    for _ in range(FITS):
        model = _fitted(steps, units)
        units = [model.predict(work) for work, _ in steps]
    return model


def measure(
    model: Path, say: Callable[[str], None], requests: int = REQUESTS
) -> tuple[list[Compared], dict[float, list[StepTimeModel]]]:
    """Warm up, find the capacity, then per run fit a profile with a separate seed, serve and compare.

    Also returns the profiles of each load.
    """
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
    runs: Sequence[Sequence[RequestRecord]],
    blind: Sequence[Sequence[RequestRecord]],
    told: Sequence[Sequence[RequestRecord]],
) -> list[Compared]:
    """p50 and p99 of both latencies."""
    return [
        Compared(
            load, what, percentile, *(
                tuple(_percentile(run, what, percentile) for run in those) for those in (runs, blind, told)
            ),
        )
        for what in ("ttft", "itl")
        for percentile in BARS
    ]  # fmt: skip


def _percentile(records: Sequence[RequestRecord], what: str, percentile: int) -> float:
    times = sorted(value for record in records if (value := record.ttft if what == "ttft" else record.itl) is not None)
    return times[min(len(times) - 1, int(percentile / 100 * len(times)))]


def _rate(records: Sequence[RequestRecord]) -> float:
    """Requests per second while all sequence slots are in use: between the first tenth of the ends and the ninth."""
    ends = sorted(record.ended_at for record in records if record.ended_at is not None)
    first, last = len(ends) // 10, len(ends) * 9 // 10
    return (last - first) / (ends[last] - ends[first])
