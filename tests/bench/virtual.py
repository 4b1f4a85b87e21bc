"""One engine in virtual time for the goodput comparison: the real scheduler, a step model of a real accelerator.

Lengths are those of azure2023_conv, arrivals Poisson, half the requests want 500 ms and 40 ms, half 5 s and 150 ms.
"""

import csv
import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sluice_engine.admission import Bounds, Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Scheduler, SchedulerConfig, advance, steady_steps, steady_work
from sluice_engine.steptime import solve_non_negative
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel

LENGTHS = Path(__file__).parents[2] / "operator" / "sluice_sim" / "data" / "azure2023_conv.csv.gz"
PROFILE = Path(__file__).parents[1] / "data" / "profile_sageserve_llama31_8b_tp2.csv.gz"
MAX_MODEL_LENGTH = 8192
TUNED_ON = slice(0, 2000)  # rows of the trace that constants of the engine were chosen on
HELD_OUT = slice(9683, 19366)  # the second half: nothing was ever chosen on it
TIGHT = (0.5, 0.040)  # seconds to the first token, and between tokens on the mean of a request
LOOSE = (5.0, 0.150)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come. Seconds and tokens."""

    at: float
    prompt: int
    output: int
    slo: tuple[float, float]


@dataclass(frozen=True, slots=True)
class System:
    """What is compared."""

    name: str
    policy: str
    chunk: int  # most tokens in one step
    latency_driven: bool  # chunks follow the step model
    predicted_admission: bool
    blocks: int = 32768
    tells_slo: bool = True  # requests carry their slo, so the door may refuse


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    requests: int
    good: int
    refused: int
    preemptions: int
    preempted: int  # requests that were preempted at least once
    finished: int
    tokens: int
    seconds: float
    missed_ttft: int
    missed_itl: int

    @property
    def goodput(self) -> float:
        """Share of all requests offered that met both of their targets."""
        return self.good / self.requests

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over the whole run."""
        return self.tokens / self.seconds


def step_model() -> StepTimeModel:
    """Llama 3.1 8B on two A100-80GB (tensor parallel), fitted to the profile by relative least squares.

    Prompt rows count only where one prompt was measured alone: with several the file's prompt time does not grow with
    their number, so it is not the time of one step.
    """
    observed: list[tuple[tuple[float, ...], float]] = []
    with gzip.open(PROFILE, "rt") as lines:
        for row in csv.DictReader(lines):
            prompt, batch, tokens = int(row["prompt_size"]), int(row["batch_size"]), int(row["token_size"])
            step = float(row["token_time"]) / tokens
            observed.append(((1.0, 0.0, 0.0, batch, batch * (prompt + tokens / 2)), step))
            if batch == 1:
                observed.append(((1.0, prompt, prompt * prompt / 2, 0.0, 0.0), float(row["prompt_time"])))
    matrix = [[sum(x[i] * x[j] / t**2 for x, t in observed) for j in range(5)] for i in range(5)]
    vector = [sum(x[i] / t for x, t in observed) for i in range(5)]
    base, prefill_token, prefill_context, sequence, kv_token = solve_non_negative(matrix, vector)
    return StepTimeModel(base, prefill_token, prefill_context, sequence, kv_token, steps=TRUSTED_STEPS)


def arrivals(requests: int, rate: float, seed: int, rows: slice = TUNED_ON) -> list[Arrival]:
    """Poisson at `rate` per second; lengths drawn from these rows of the trace."""
    lengths = _lengths()[rows]
    dice = random.Random(seed)
    at, coming = 0.0, []
    for _ in range(requests):
        at += dice.expovariate(rate)
        prompt, output = dice.choice(lengths)
        slo = TIGHT if dice.random() < 0.5 else LOOSE
        coming.append(Arrival(at, max(1, prompt), max(1, output), slo))
    return coming


@cache
def _lengths() -> list[tuple[int, int]]:
    with gzip.open(LENGTHS, "rt") as lines:
        rows = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(lines)]
    return [lengths for lengths in rows if sum(lengths) <= MAX_MODEL_LENGTH]  # leaves out one of 19,366


class _Run:
    def __init__(self, system: System, model: StepTimeModel, coming: Sequence[Arrival]) -> None:
        self.system, self.model, self.coming = system, model, coming
        config = SchedulerConfig(
            num_blocks=system.blocks,
            max_model_length=MAX_MODEL_LENGTH,
            prefix_cache=False,
            policy=system.policy,
            predicted_admission=system.predicted_admission,
        )
        bounds = Bounds(concurrency_max=256, max_queue=len(coming), max_batched_tokens=system.chunk)
        self.scheduler = Scheduler(config, Limits(bounds))
        self.clock = 0.0
        self.next = 0
        self.requests: dict[str, Request] = {}
        self.first: dict[str, float] = {}
        self.good = self.refused = self.finished = self.tokens = self.missed_ttft = self.missed_itl = self.preempted = 0

    def result(self) -> Result:
        while self.next < len(self.coming) or self.scheduler.requests:
            self.arrive()
            if not self.steady():
                self.step()
        return Result(
            requests=len(self.coming),
            good=self.good,
            refused=self.refused,
            preemptions=self.scheduler.preemptions,
            preempted=self.preempted,
            finished=self.finished,
            tokens=self.tokens,
            seconds=self.clock,
            missed_ttft=self.missed_ttft,
            missed_itl=self.missed_itl,
        )

    def arrive(self) -> None:
        while self.next < len(self.coming) and self.coming[self.next].at <= self.clock:
            arrival, name = self.coming[self.next], str(self.next)
            self.next += 1
            slo = arrival.slo if self.system.tells_slo else (None, None)
            request = Request(
                name, [0] * arrival.prompt, arrival.output, arrival.at, ttft_target=slo[0], itl_target=slo[1]
            )
            if self.scheduler.submit(request) is None:
                self.requests[name] = request
            else:
                self.refused += 1

    def step(self) -> None:
        plan = self.scheduler.plan(self.clock, self.model if self.system.latency_driven else None)
        if plan is None:
            self.clock = self.coming[self.next].at
            return
        self.clock += self.model.predict(plan.work)
        self.take(self.scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), self.clock), self.clock)

    def steady(self) -> bool:
        """As many decode-only steps at once as end before the next arrival."""
        most = steady_steps(self.scheduler)
        horizon = self.coming[self.next].at if self.next < len(self.coming) else float("inf")
        if most < 2 or self.clock >= horizon:
            return False
        work = steady_work(self.scheduler)
        seconds, ends, at = self.model.predict(work), list[float](), self.clock
        while len(ends) < most and at < horizon:
            at += seconds
            ends.append(at)
            seconds += self.model.kv_token * work.sequences
        self.clock = at
        self.take(advance(self.scheduler, ends), ends[0])
        return True

    def take(self, outcomes: Sequence[Outcome], first_at: float) -> None:
        for outcome in outcomes:
            self.first.setdefault(outcome.request_id, first_at)
            if outcome.finish is not None:
                self.judge(outcome.request_id)

    def judge(self, name: str) -> None:
        arrival, request = self.coming[int(name)], self.requests.pop(name)
        first = self.first.pop(name)
        itl = (self.clock - first) / (request.generated - 1) if request.generated > 1 else 0.0
        late, slow = first - arrival.at > arrival.slo[0], itl > arrival.slo[1]
        self.finished += 1
        self.tokens += request.generated
        self.preempted += request.preemptions > 0
        self.good += not (late or slow)
        self.missed_ttft += late
        self.missed_itl += slow


def run(system: System, model: StepTimeModel, coming: Sequence[Arrival]) -> Result:
    """Serve all that comes, to the end."""
    return _Run(system, model, coming).result()
