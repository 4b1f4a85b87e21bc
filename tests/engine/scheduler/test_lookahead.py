"""Steps planned while the one before runs: when requests end, which blocks are fenced, and that no token changes."""

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import PENDING, Outcome, Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.policies import POLICIES

STOP = 9
Model = Callable[[str, int], int]  # (request, position) → the token sampled there


def scheduler(blocks: int = 64, seqs: int = 8, length: int = 128, size: int = 4, **changes: object) -> Scheduler:
    config = SchedulerConfig(
        num_blocks=blocks,
        block_size=size,
        max_num_seqs=seqs,
        max_model_length=length,
        **changes,  # type: ignore[arg-type]
    )
    return Scheduler(config, LimitController(Limits(concurrency_max=seqs, max_batched_tokens=48)))


def request(name: str, prompt: int, max_tokens: int) -> Request:
    return Request(name, [1000 + ord(name[0]) + at for at in range(prompt)], max_tokens, 0.0, frozenset([STOP]))


def said(plan: Plan, model: Model) -> list[int]:
    return [model(row.request_id, row.start + len(row.tokens)) for row in plan.rows if row.samples]


def names(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [row.request_id for row in plan.rows]


def test_a_sequence_that_ends_by_length_frees_its_place_for_the_very_next_step() -> None:
    engine = scheduler(seqs=1)
    engine.submit(request("a", 4, max_tokens=2))
    engine.submit(request("b", 4, max_tokens=1))
    first = engine.plan(0.0)
    second = engine.plan_ahead(0.0)
    assert (names(first), names(second)) == (["a"], ["a"])
    assert second is not None and first is not None and second.rows[0].tokens == (PENDING,)
    engine.settle(first, [7], 0.0)
    third = engine.plan_ahead(0.0)  # while a's last token is being computed
    assert names(third) == ["b"] and third is not None and third.rows[0].slot == second.rows[0].slot
    engine.check()
    assert [outcome.finish for outcome in engine.settle(second, [7], 1.0)] == ["length"]
    engine.check()
    assert [outcome.finish for outcome in engine.settle(third, [7], 2.0)] == ["length"]
    assert engine.pool.held == 0


def test_a_sequence_that_ends_by_a_stop_token_frees_its_place_one_step_later_and_its_surplus_token_is_dropped() -> None:
    engine = scheduler(seqs=1)
    engine.submit(request("a", 4, max_tokens=9))
    engine.submit(request("b", 4, max_tokens=1))
    first = engine.plan(0.0)
    second = engine.plan_ahead(0.0)
    assert first is not None and second is not None
    assert [outcome.finish for outcome in engine.settle(first, [STOP], 0.0)] == ["stop"]
    third = engine.plan_ahead(0.0)
    assert names(third) == ["b"]  # one row of a was computed for nothing, in the step between
    assert engine.settle(second, [7], 1.0) == []
    engine.check()


def test_an_aborted_sequence_is_fenced_until_the_step_that_writes_its_blocks_has_ended() -> None:
    engine = scheduler(blocks=33, seqs=2)
    engine.submit(request("a", 60, max_tokens=9))
    engine.plan(0.0)
    held = engine.pool.held
    plan = engine.plan_ahead(0.0)
    assert plan is not None and engine.cancel("a")
    engine.check()
    assert engine.pool.held >= held and not engine.requests
    engine.settle(plan, [7] * len(said(plan, lambda *_: 7)), 0.0)
    assert engine.pool.held == 0


def test_a_request_that_fails_after_it_was_cancelled_leaves_no_block_in_the_index() -> None:
    engine = scheduler()
    engine.submit(request("a", 40, max_tokens=9))
    plan = engine.plan(0.0)
    assert plan is not None and engine.cancel("a")
    assert engine.settle(plan, [-1], 0.0, {"a": "not a number"}) == []
    assert engine.pool.held == engine.pool.cached == 0 and len(engine.state.tables.tainted) == 10
    engine.submit(request("a", 40, max_tokens=9))
    again = engine.plan(0.0)
    assert again is not None and again.rows[0].start == 0 and len(again.scrub) == 10


def test_a_request_that_started_from_blocks_of_a_failed_one_restarts_though_its_step_is_in_flight() -> None:
    engine = scheduler()
    engine.submit(request("a", 40, max_tokens=9))
    first = engine.plan(0.0)
    copy = request("a", 40, max_tokens=9)
    copy.request_id = "b"
    engine.submit(copy)
    second = engine.plan_ahead(0.0)
    assert first is not None and second is not None
    assert [(row.request_id, row.start) for row in second.rows] == [("a", 40), ("b", 36)]
    engine.settle(first, [-1], 0.0, {"a": "not a number"})
    engine.check()
    assert engine.settle(second, [-1, -1], 1.0, {"a": "not a number", "b": "not a number"}) == []
    assert [(row.request_id, row.start) for row in engine.plan(2.0).rows] == [("b", 0)]  # type: ignore[union-attr]


loads = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "size": st.sampled_from([1, 4, 16]),
        "spare": st.integers(0, 12),
        "seqs": st.integers(1, 6),
        "requests": st.integers(1, 20),
        "policy": st.sampled_from(sorted(POLICIES)),
        "prefix_cache": st.booleans(),
    }
)


def drive(load: dict[str, object], ahead: bool, faults: bool) -> dict[str, list[Outcome]]:
    """Run a load to its end, overlapped or not; the tokens are a function of request and position."""
    seed, size = int(str(load["seed"])), int(str(load["size"]))
    dice = random.Random(seed)
    engine = scheduler(
        blocks=-(-60 // size) + int(str(load["spare"])),
        seqs=int(str(load["seqs"])),
        length=60,
        size=size,
        policy=load["policy"],
        prefix_cache=load["prefix_cache"],
    )
    waiting = [
        Request(
            str(index),
            [dice.randrange(3) for _ in range(dice.randint(1, 58))],
            dice.randint(1, 40),
            0.0,
            frozenset([STOP]),
            priority=dice.randint(-9, 9),
            tenant=dice.choice("ab"),
        )
        for index in range(int(str(load["requests"])))
    ]
    said_by: dict[str, list[Outcome]] = {each.request_id: [] for each in waiting}

    def model(name: str, position: int) -> int:
        drawn = random.Random(f"{seed} {name} {position}").randrange(40)
        return STOP if drawn == 39 else drawn % 3

    under_way: Plan | None = None
    for now in range(20_000):
        while waiting and dice.random() < 0.4:
            engine.submit(waiting.pop())
        if faults and engine.requests and dice.random() < 0.05:
            said_by.pop(name := dice.choice(sorted(engine.requests)))
            assert engine.cancel(name)
            engine.check()
        plan = under_way or engine.plan(float(now))
        if plan is None:
            if not waiting:
                break
            continue
        under_way = engine.plan_ahead(float(now)) if ahead else None
        engine.check()
        errors = {row.request_id: "broken" for row in plan.rows if faults and dice.random() < 0.01}
        for outcome in engine.settle(plan, said(plan, model), float(now), errors):
            if outcome.request_id in said_by:
                said_by[outcome.request_id].append(outcome)
        engine.check()
    assert not engine.requests and engine.pool.held == 0
    return said_by


@settings(max_examples=100, deadline=None)
@given(loads)
def test_steps_planned_ahead_give_every_request_the_same_tokens(load: dict[str, object]) -> None:
    def texts(ahead: bool) -> dict[str, tuple[list[int], object]]:
        answers = drive(load, ahead, faults=False)
        return {
            name: ([token for each in outcomes for token in each.token_ids], outcomes[-1].finish)
            for name, outcomes in answers.items()
        }

    assert texts(ahead=True) == texts(ahead=False)


@settings(max_examples=100, deadline=None)
@given(loads)
def test_failures_and_aborts_between_overlapped_steps_leave_nothing_behind(load: dict[str, object]) -> None:
    for outcomes in drive(load, ahead=True, faults=True).values():
        assert [each.finish is not None for each in outcomes] == [False] * (len(outcomes) - 1) + [True]
