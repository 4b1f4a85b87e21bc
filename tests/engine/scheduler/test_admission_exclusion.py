"""A waiting request that the predicted KV peak excludes starts in the first step in which it no longer does."""

import math
import random

from hypothesis import example, given
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig, advance, steady_steps
from sluice_engine.scheduler.admission.check import AdmissionCheck
from sluice_engine.scheduler.admission.output_lengths import MIN_LENGTHS
from sluice_engine.scheduler.policies import POLICIES

Windows = tuple[int | None, ...]
ALL_WINDOWS: list[Windows] = [(None,), (40,), (None, 40)]


def engine(blocks: int, tokens: int, windows: Windows = (None,), policy: str = "priority") -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_model_length=1900, policy=policy, windows=windows)
    return Scheduler(config, LimitController(Limits(concurrency_max=32, max_batched_tokens=tokens)))


def step(scheduler: Scheduler, now: float = 0.0) -> list[str]:
    """Those that begin to run in this step."""
    plan = scheduler.plan(now)
    if plan is None:
        return []
    scheduler.settle(plan, [1] * sum(row.samples for row in plan.rows), now)
    scheduler.check()
    return [join.request_id for join in plan.joins]


def written(scheduler: Scheduler, length: int) -> None:
    for _ in range(MIN_LENGTHS):
        scheduler.state.lengths.add("", length)


def test_a_prompt_that_another_request_still_computes_starts_once_enough_of_it_is_shared() -> None:
    """Two prompts of 50 blocks and 25 to come each, half a block empty: 151 without sharing, 119 with two chunks."""
    scheduler = engine(blocks=120, tokens=256)
    written(scheduler, 400)
    prompt = list(range(2, 802))
    scheduler.submit(Request("first", prompt, 400, 0.0))
    assert step(scheduler) == ["first"]
    scheduler.submit(Request("second", list(prompt), 400, 0.0, priority=9))
    assert [step(scheduler), step(scheduler)] == [[], ["second"]]


def test_a_new_request_with_the_id_of_an_excluded_one_is_tested_by_itself() -> None:
    scheduler = engine(blocks=124, tokens=2048)
    written(scheduler, 1200)
    scheduler.submit(Request("long", [2] * 100, 1500, 0.0))
    step(scheduler)
    scheduler.submit(Request("again", [3] * 100, 1500, 0.0))
    assert step(scheduler) == []
    scheduler.cancel("again")
    scheduler.submit(Request("again", [3] * 100, 20, 0.0))
    assert step(scheduler) == ["again"]


def overloaded_scheduler(seed: int, windows: Windows, policy: str) -> tuple[random.Random, Scheduler, list[list[int]]]:
    """A scheduler with too few blocks for what is submitted, and two prompts whose beginnings the requests share."""
    dice = random.Random(seed)
    scheduler = engine(blocks=dice.randint(130, 200), tokens=dice.choice([32, 64, 256]), windows=windows, policy=policy)
    written(scheduler, dice.choice([20, 200]))
    return dice, scheduler, [[dice.randrange(2, 9) for _ in range(700)] for _ in range(2)]


def drawn(name: str, dice: random.Random, prefixes: list[list[int]]) -> Request:
    prompt = dice.choice(prefixes)[: dice.randint(1, 700)]
    return Request(name, prompt, dice.randint(1, 300), 0.0, priority=dice.randint(-9, 9))


def test_the_predicted_peak_falls_while_a_request_decodes_and_the_excluded_one_starts_before_the_other_ends() -> None:
    """Prompts of 800, outputs of 400: after k steps the first one's end finds 2401 - k tokens, and 151 - k / 16 blocks."""
    scheduler = engine(blocks=150, tokens=2048)
    written(scheduler, 400)
    scheduler.submit(Request("running", [2] * 800, 400, 0.0))
    step(scheduler)
    scheduler.submit(Request("excluded", [3] * 800, 400, 0.0))
    limit = scheduler.state.limits.current.kv_watermark * 150
    started = next(number for number in range(1, 400) if step(scheduler))
    assert started == math.ceil((151 - limit) * 16)
    assert [request.request_id for request in scheduler.running] == ["running", "excluded"]


@example(seed=59, windows=(None,), policy="priority")  # each of these starts a request that was excluded before, after
@example(seed=246, windows=(None,), policy="fcfs")  # steps in which no block was released
@example(seed=101, windows=(None, 40), policy="fcfs")
@example(seed=215, windows=(None, 40), policy="fcfs")
@given(
    seed=st.integers(0, 10**6),
    windows=st.sampled_from(ALL_WINDOWS),
    policy=st.sampled_from(sorted(POLICIES)),
)
def test_the_remembered_exclusion_equals_a_new_test(seed: int, windows: Windows, policy: str) -> None:
    dice, scheduler, prefixes = overloaded_scheduler(seed, windows, policy)
    for number in range(25):
        if len(scheduler.waiting) < 3:
            scheduler.submit(drawn(str(number), dice, prefixes))
        step(scheduler, float(number))
        head = scheduler.waiting.head(float(number))
        if head is not None:
            hit, state = scheduler.state.tables.match(head.request), scheduler.state
            anew = AdmissionCheck(scheduler.config, state.limits, state.tables, state.lengths)
            assert state.admission.can_start(head.request, hit) == anew.can_start(head.request, hit)


@given(st.integers(0, 10**6), st.sampled_from(ALL_WINDOWS), st.sampled_from(["fcfs", "priority", "srpf"]))
def test_steps_taken_at_once_start_each_request_in_the_same_step_as_single_steps(
    seed: int, windows: Windows, policy: str
) -> None:
    def starts(at_once: bool) -> dict[str, int]:
        dice, scheduler, prefixes = overloaded_scheduler(seed, windows, policy)
        for number in range(12):
            scheduler.submit(drawn(str(number), dice, prefixes))
        found = dict[str, int]()
        while scheduler.requests:
            steady = steady_steps(scheduler.state) if at_once else 0
            if steady:
                advance(scheduler.state, [0.0] * steady, token=1)
            else:
                found |= dict.fromkeys(step(scheduler), scheduler.state.tables.planned)
        return found

    assert starts(at_once=True) == starts(at_once=False)
