"""Who was kept out by the predicted peak is looked at again as soon as the answer could be another."""

import random

from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.control.limits import Bounds, Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.admission.fitting import Fitting
from sluice_engine.scheduler.admission.output_lengths import TRUSTED

Windows = tuple[int | None, ...]


def engine(blocks: int, tokens: int, windows: Windows = (None,), policy: str = "priority") -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_model_length=1900, policy=policy, windows=windows)
    return Scheduler(config, Limits(Bounds(concurrency_max=32, max_batched_tokens=tokens)))


def step(scheduler: Scheduler, now: float = 0.0) -> list[str]:
    """Those that begin to run in this step."""
    plan = scheduler.plan(now)
    if plan is None:
        return []
    scheduler.settle(plan, [1] * sum(row.samples for row in plan.rows), now)
    scheduler.check()
    return [join.request_id for join in plan.joins]


def written(scheduler: Scheduler, length: int) -> None:
    for _ in range(TRUSTED):
        scheduler.state.lengths.add("", length)


def test_a_prompt_whose_beginning_another_still_computes_begins_once_enough_of_it_is_shared() -> None:
    """Two prompts of 50 blocks and 25 to come each, half a block empty: 151 without sharing, 119 with two chunks."""
    scheduler = engine(blocks=120, tokens=256)
    written(scheduler, 400)
    prompt = list(range(2, 802))
    scheduler.submit(Request("first", prompt, 400, 0.0))
    assert step(scheduler) == ["first"]
    scheduler.submit(Request("second", list(prompt), 400, 0.0, priority=9))
    assert [step(scheduler), step(scheduler)] == [[], ["second"]]


def test_another_request_of_the_same_name_is_another_question() -> None:
    scheduler = engine(blocks=124, tokens=2048)
    written(scheduler, 1200)
    scheduler.submit(Request("long", [2] * 100, 1500, 0.0))
    step(scheduler)
    scheduler.submit(Request("again", [3] * 100, 1500, 0.0))
    assert step(scheduler) == []
    scheduler.cancel("again")
    scheduler.submit(Request("again", [3] * 100, 20, 0.0))
    assert step(scheduler) == ["again"]


@given(st.integers(0, 10**6), st.sampled_from([(None,), (40,), (None, 40)]), st.sampled_from(["fcfs", "priority"]))
def test_what_is_remembered_is_what_would_be_found_anew(seed: int, windows: Windows, policy: str) -> None:
    dice = random.Random(seed)
    scheduler = engine(blocks=dice.randint(130, 200), tokens=dice.choice([32, 64, 256]), windows=windows, policy=policy)
    written(scheduler, dice.choice([20, 200]))
    starts = [[dice.randrange(2, 9) for _ in range(700)] for _ in range(2)]
    for number in range(25):
        if len(scheduler.waiting) < 3:
            prompt = dice.choice(starts)[: dice.randint(1, 700)]
            scheduler.submit(Request(str(number), prompt, dice.randint(1, 300), 0.0, priority=dice.randint(-9, 9)))
        step(scheduler, float(number))
        head = scheduler.waiting.head(float(number))
        if head is not None:
            hit = scheduler.state.tables.match(head.request)
            anew = Fitting(scheduler.config, scheduler.state.limits, scheduler.state.tables, scheduler.state.lengths)
            assert scheduler.state.fitting.fits(head.request, hit) == anew.fits(head.request, hit)
