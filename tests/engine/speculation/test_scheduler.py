"""Drafts in the scheduler: the same text with and without them, whatever the load, and consistent block counts."""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_engine.speculation.controller import MAX_DRAFT_TOKENS, Mode
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.01, prefill_token=1e-4, prefill_context=1e-8, sequence=1e-4, kv_token=1e-7, steps=1000)
STOP = 9


def build(speculation: Mode = "on", *, num_blocks: int = 64, block_size: int = 4, length: int = 200) -> Scheduler:
    config = SchedulerConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_seqs=8,
        max_model_length=length,
        speculation=speculation,
    )
    return Scheduler(config, LimitController(Limits(concurrency_max=8, max_batched_tokens=64)))


def truth(known: list[int]) -> int:
    """What a deterministic model says after these tokens: mostly a circle, now and then something else, or the end."""
    if len(known) % 23 == 0:
        return (sum(known[-5:]) + len(known)) % 4
    if len(known) % 131 == 0:
        return STOP
    return (known[-1] + 1) % 4


def computed(engine: Scheduler, plan: Plan) -> tuple[list[int], dict[str, int]]:
    """What a runner gives: accepted drafts by request, and for each sampling row the token behind them."""
    sampled: list[int] = []
    accepted: dict[str, int] = {}
    for row in plan.rows:
        if not row.samples:
            continue
        known = list(engine.requests[row.request_id].known)
        assert tuple(known[row.start :]) == row.tokens[: len(row.tokens) - row.drafts]
        for draft in row.tokens[len(row.tokens) - row.drafts :]:
            if truth(known) != draft:
                break
            known.append(draft)
            accepted[row.request_id] = accepted.get(row.request_id, 0) + 1
        sampled.append(truth(known))
    return sampled, accepted


def write(engine: Scheduler, requests: list[Request], dice: random.Random) -> dict[str, list[int]]:
    """Texts of all requests, which arrive one by one; those that are cancelled or fail have none."""
    texts: dict[str, list[int]] = {request.request_id: [] for request in requests}
    ended: Counter[str] = Counter()
    waiting = list(requests)
    for now in range(20_000):
        while waiting and dice.random() < 0.5:
            assert engine.submit(waiting.pop()) is None
        plan = engine.plan(float(now), MODEL)
        if plan is None:
            if not waiting:
                break
            continue
        assert sum(len(row.tokens) for row in plan.rows) <= 64 + 16
        drafted = [row for row in plan.rows if row.drafts]
        assert plan.draft_tokens == sum(row.drafts for row in drafted)
        assert plan.work.sequences + plan.work.prefill_tokens + plan.draft_tokens == sum(
            len(r.tokens) for r in plan.rows
        )
        for row in drafted:
            held = engine.requests[row.request_id].blocks
            assert list(row.new_blocks) == held[row.first_block :]
            assert len(held) == engine.state.tables.blocks_for(row.start + len(row.tokens))
        sampled, accepted = computed(engine, plan)
        for outcome in engine.settle(plan, sampled, float(now), {}, accepted):
            texts[outcome.request_id] += outcome.token_ids
            ended[outcome.request_id] += outcome.finish is not None
        engine.check()
    assert set(ended.values()) <= {1} and len(ended) == len(requests)
    assert not engine.requests and engine.pool.held == 0
    return texts


loads = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "block_size": st.sampled_from([1, 4, 16]),
        "spare": st.integers(0, 30),
        "requests": st.integers(1, 12),
        "mode": st.sampled_from(["on", "auto"]),
    }
)


@settings(max_examples=80, deadline=None)
@given(loads)
def test_texts_are_the_same_with_and_without_drafts(load: dict[str, object]) -> None:
    seed, size = int(str(load["seed"])), int(str(load["block_size"]))

    def requests() -> list[Request]:
        dice = random.Random(seed)
        return [
            Request(
                str(index),
                [dice.randrange(4) for _ in range(dice.randint(1, 60))],
                dice.randint(1, 90),
                0.0,
                stop_ids=frozenset([STOP, 0] if dice.random() < 0.2 else [STOP]),
                priority=dice.randint(-5, 5),
                itl_target=dice.choice([None, 0.013]),
            )
            for index in range(int(str(load["requests"])))
        ]

    def world(mode: Mode) -> Scheduler:
        return build(mode, num_blocks=-(-96 // size) + int(str(load["spare"])), block_size=size, length=96)

    plain = write(world("off"), requests(), random.Random(seed))
    engine = world(load["mode"])  # type: ignore[arg-type]
    assert write(engine, requests(), random.Random(seed)) == plain
    assert 0 <= engine.speculation.accepted <= engine.speculation.drafted


def run_one(engine: Scheduler, request: Request) -> int:
    """Steps until one request is done."""
    engine.submit(request)
    for step in range(1000):
        plan = engine.plan(0.0, MODEL)
        if plan is None:
            return step
        sampled, accepted = computed(engine, plan)
        engine.settle(plan, sampled, 0.0, {}, accepted)
        engine.check()
    raise AssertionError("it does not end")


def test_a_text_that_repeats_itself_takes_a_fraction_of_the_steps() -> None:
    plain, drafting = build("off"), build("on")
    prompt = [0, 1, 2, 3] * 3
    assert run_one(plain, Request("a", list(prompt), 120, 0.0)) > 2.5 * run_one(
        drafting, Request("a", list(prompt), 120, 0.0)
    )
    assert drafting.speculation.accepted > 60


def test_drafts_stop_at_the_length_that_was_asked_for_and_at_the_models() -> None:
    engine = build("on", length=40)
    for most in (1, 2, 5, 100):
        request = Request(f"of{most}", [0, 1, 2, 3] * 3, most, 0.0)
        run_one(engine, request)
        assert request.generated == min(most, 28)


def test_drafts_use_only_free_blocks_and_preempt_no_request() -> None:
    drafted = []
    for spare in range(4):
        engine = build("on", num_blocks=14 + spare, block_size=4, length=56)
        requests = [Request(str(index), [index, *[0, 1, 2, 3] * 6], 4, 0.0) for index in range(2)]  # 7 blocks each
        for request in requests:
            engine.submit(request)
        while (plan := engine.plan(0.0)) is not None:
            assert plan.preempted is None
            sampled, accepted = computed(engine, plan)
            engine.settle(plan, sampled, 0.0, {}, accepted)
            engine.check()
        drafted.append(engine.speculation.drafted)
    assert drafted[0] > 0


def test_drafts_that_are_wrong_leave_no_block_and_nothing_in_the_prefix_index() -> None:
    engine = build("on", block_size=4)
    request = Request("a", [5, 6, 7, 8] * 4, 40, 0.0)
    engine.submit(request)
    plan = engine.plan(0.0)
    assert plan is not None
    engine.settle(plan, [5], 0.0)
    plan = engine.plan(0.0)
    assert plan is not None and plan.rows[0].drafts == MAX_DRAFT_TOKENS
    held, cached = engine.pool.held, engine.pool.match(request.hashes)
    assert held == engine.state.tables.blocks_for(17 + MAX_DRAFT_TOKENS)
    engine.settle(plan, [1], 0.0, {}, {"a": 2})
    engine.check()
    assert request.known == [5, 6, 7, 8] * 4 + [5, 6, 7, 1]
    assert request.computed == 19 and engine.pool.held == 5
    engine.state.tables.hash_known(request)
    assert engine.pool.match(request.hashes) == cached  # the fifth block is full of known tokens, but not computed


def test_a_stop_token_among_accepted_drafts_ends_the_text_before_it() -> None:
    engine = build("on")
    request = Request("a", [0, 1, 2, 3] * 4, 40, 0.0, stop_ids=frozenset([2]))
    engine.submit(request)
    plan = engine.plan(0.0)
    assert plan is not None
    engine.settle(plan, [0], 0.0)
    plan = engine.plan(0.0)
    assert plan is not None and plan.rows[0].tokens[:4] == (0, 1, 2, 3)
    (outcome,) = engine.settle(plan, [1], 0.0, {}, {"a": plan.rows[0].drafts})
    assert (outcome.token_ids, outcome.finish) == ((1,), "stop")
    engine.check()
    assert not engine.requests and engine.pool.held == 0


def test_drafts_never_push_a_step_past_a_target_that_it_would_meet_without_them() -> None:
    def drafted(target: float) -> int:
        engine = build("auto")
        engine.submit(Request("a", [0, 1, 2, 3] * 6, 100, 0.0, itl_target=target))
        longest = 0
        while (plan := engine.plan(0.0, MODEL)) is not None:
            if plan.draft_tokens:
                longest = max(longest, plan.draft_tokens)
                assert MODEL.predict(plan.whole_work) <= target
            sampled, accepted = computed(engine, plan)
            engine.settle(plan, sampled, 0.0, {}, accepted)
        return longest

    tight = MODEL.base + MODEL.sequence + 4e-4
    assert 0 < drafted(tight) < drafted(1.0) == MAX_DRAFT_TOKENS


def test_a_request_that_fails_in_a_step_with_drafts_releases_all_its_blocks() -> None:
    engine = build("on")
    for index in range(2):
        engine.submit(Request(str(index), [0, 1, 2, 3] * 4, 40, 0.0))
    for _ in range(3):
        plan = engine.plan(0.0)
        assert plan is not None
        sampled, accepted = computed(engine, plan)
        errors = {"0": "broken"} if plan.draft_tokens else {}
        engine.settle(plan, sampled, 0.0, errors, accepted)
        engine.check()
        if errors:
            break
    assert list(engine.requests) == ["1"]
    assert engine.state.tables.tainted
