"""One engine in virtual time for the goodput comparison: the real scheduler with the step model of a real accelerator.

Lengths are those of azure2023_conv and arrivals are Poisson. Half the requests have targets of 500 ms (TTFT) and 40 ms
(ITL), half of 5 s and 150 ms.
"""

import csv
import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.step_time_fit import solve_non_negative
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Scheduler, SchedulerConfig, advance, steady_steps, steady_work
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel

LENGTHS = Path(__file__).parents[3] / "operator" / "sluice_sim" / "data" / "azure2023_conv.csv.gz"
PROFILE = Path(__file__).parents[2] / "data" / "profile_sageserve_llama31_8b_tp2.csv.gz"
MAX_MODEL_LENGTH = 8192
TUNED_ON = slice(0, 2000)  # rows of the trace that constants of the engine were chosen on
HELD_OUT = slice(9683, 19366)  # the second half: no constant was chosen on it
TIGHT = (0.5, 0.040)  # TTFT and mean ITL of a request, seconds
LOOSE = (5.0, 0.150)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One future request. Seconds and tokens."""

    at: float
    prompt: int
    output: int
    slo: tuple[float, float]


@dataclass(frozen=True, slots=True)
class System:
    """One configuration of the comparison."""

    name: str
    policy: str
    chunk: int  # most tokens in one step
    latency_driven: bool  # the step model determines the chunks
    predicted_admission: bool
    blocks: int = 32768
    tells_slo: bool = True  # requests carry their SLO, so load shedding may reject them


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run."""

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
        """Share of all offered requests that met both of their targets."""
        return self.good / self.requests

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over the whole run."""
        return self.tokens / self.seconds


def step_model() -> StepTimeModel:
    """Llama 3.1 8B on two A100-80GB (tensor parallel), fitted to the profile by relative least squares.

    Prompt rows count only if one prompt was measured alone: with several prompts the file's prompt time does not grow
    with their number, so it is not the time of one step.
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
    return StepTimeModel(
        base, prefill_token, prefill_context, sequence, kv_token, steps=PERFMODEL.limit.least_model_steps
    )


def arrivals(requests: int, rate: float, seed: int, rows: slice = TUNED_ON) -> list[Arrival]:
    """Poisson arrivals at `rate` per second, with lengths drawn from these rows of the trace."""
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
    return [lengths for lengths in rows if sum(lengths) <= MAX_MODEL_LENGTH]  # excludes one of 19,366


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
        bounds = Limits(concurrency_max=256, max_queue=len(coming), max_batched_tokens=system.chunk)
        self.scheduler = Scheduler(config, LimitController(bounds))
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
        """Advance all decode-only steps at once that start before the next arrival; False if there are none."""
        most = steady_steps(self.scheduler.state)
        horizon = self.coming[self.next].at if self.next < len(self.coming) else float("inf")
        if most < 2 or self.clock >= horizon:
            return False
        work = steady_work(self.scheduler.state)
        seconds, ends, at = self.model.predict(work), list[float](), self.clock
        while len(ends) < most and at < horizon:
            at += seconds
            ends.append(at)
            seconds += self.model.kv_token * work.sequences
        self.clock = at
        self.take(advance(self.scheduler.state, ends), ends[0])
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
    """Serve all requests to their end."""
    return _Run(system, model, coming).result()
