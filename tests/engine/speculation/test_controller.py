"""When requests draft: lengths by the step-time model, rest where drafts cost more than they gain, probes, resuming."""

import random
from dataclasses import replace

import pytest

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.speculation.controller import MAX_DRAFT_TOKENS, PERIOD, PROBES_PER_STEP, Price, Speculation
from sluice_engine.speculation.draft_cost import DraftCost
from sluice_perfmodel.step_time import StepTimeModel

CHEAP = Price(worth=1.0, token=0.1, context=0.0)
DEAR = Price(worth=1.0, token=1.1, context=0.0)  # costs more than a token that is accepted for certain
REPEATING = [1, 2, 3, 4] * 8


def stream(name: str, known: list[int] | None = None) -> Request:
    request = Request(name, list(REPEATING if known is None else known), max_tokens=1000, arrived_at=0.0)
    request.computed = len(request.known) - 1
    return request


def plays(speculation: Speculation, requests: list[Request], price: Price, right: bool, begin: int, steps: int) -> int:
    """So many steps, all draft tokens right or all wrong. How many tokens were drafted."""
    drafted = 0
    for step in range(begin, begin + steps):
        if speculation.is_open(step):
            for request in speculation.candidates(step, requests):
                found = speculation.draft(request, 100, price)
                if found:
                    drafted += len(found)
                    speculation.settle(request.request_id, len(found), len(found) if right else 0)
    return drafted


@pytest.mark.parametrize(("chance", "token"), [(0.5, 0.1), (0.9, 0.01), (0.99, 0.9), (0.3, 0.5), (0.7, 0.7)])
def test_length_is_the_last_draft_token_whose_chance_is_worth_its_cost(chance: float, token: float) -> None:
    pays = [i for i in range(1, MAX_DRAFT_TOKENS + 1) if chance**i * 1.0 >= token]
    assert Price(1.0, token, 0.0).length(chance, 0) == max(pays, default=0)


def test_length_falls_with_the_context_behind_which_a_draft_attends() -> None:
    price = Price(worth=1.0, token=0.1, context=1e-4)
    lengths = [price.length(0.8, context) for context in (0, 1_000, 4_000, 20_000)]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > 0 == lengths[-1]


def test_off_never_opens_a_step() -> None:
    speculation = Speculation("off")
    speculation.join(stream("a"))
    assert not any(speculation.is_open(step) for step in range(4 * PERIOD))


def test_on_drafts_whatever_it_costs_but_keeps_plain_steps_for_the_fit() -> None:
    speculation = Speculation("on")
    request = stream("a")
    speculation.join(request)
    opened = [speculation.is_open(step) for step in range(2 * PERIOD)]
    assert opened.count(False) == 2
    assert speculation.draft(request, 6, None) == (1, 2, 3, 4, 1, 2)


def test_right_drafts_grow_longer_and_wrong_ones_end() -> None:
    speculation = Speculation("auto")
    request = stream("a")
    speculation.join(request)
    first = len(speculation.draft(request, 100, CHEAP))
    plays(speculation, [request], CHEAP, right=True, begin=1, steps=10)
    assert len(speculation.draft(request, 100, CHEAP)) > first
    assert plays(speculation, [request], CHEAP, right=False, begin=PERIOD + 1, steps=PERIOD - 2) > 0
    plays(speculation, [request], CHEAP, right=False, begin=2 * PERIOD, steps=2 * PERIOD)
    for period in range(4, 8):  # at rest: one look in each period
        assert (
            0
            < plays(speculation, [request], CHEAP, right=False, begin=period * PERIOD, steps=PERIOD)
            <= MAX_DRAFT_TOKENS
        )


def test_a_probe_detects_a_text_that_begins_to_repeat_itself() -> None:
    speculation = Speculation("auto")
    request = stream("a")
    speculation.join(request)
    plays(speculation, [request], CHEAP, right=False, begin=1, steps=200)
    late = [plays(speculation, [request], CHEAP, right=True, begin=n * PERIOD, steps=PERIOD) for n in range(10, 20)]
    assert late[-1] > 10 * late[0]


def test_what_costs_more_than_it_can_bring_is_not_drafted_beyond_probes() -> None:
    speculation = Speculation("auto")
    requests = [stream(str(index)) for index in range(40)]
    for request in requests:
        speculation.join(request)
    plays(speculation, requests, DEAR, right=True, begin=1, steps=PERIOD)
    for period in range(1, 6):
        drafted = plays(speculation, requests, DEAR, right=True, begin=period * PERIOD, steps=PERIOD)
        assert drafted <= PROBES_PER_STEP * 4


def test_probes_take_turns() -> None:
    speculation = Speculation("auto")
    requests = [stream(str(index)) for index in range(3 * PROBES_PER_STEP)]
    for request in requests:
        speculation.join(request)
    plays(speculation, requests, DEAR, right=True, begin=1, steps=3)
    asked = [
        request.request_id
        for turn in range(3)
        for request in speculation.candidates(turn * PERIOD + PERIOD // 2, requests)
    ]
    assert sorted(asked) == sorted(request.request_id for request in requests)


def test_texts_without_repetition_stop_drafting_and_later_requests_start_at_rest() -> None:
    speculation = Speculation("auto")
    requests = []
    for index in range(20):
        requests.append(stream(str(index), list(range(100 * index, 100 * index + 50))))
        speculation.join(requests[-1])
        plays(speculation, requests, CHEAP, right=True, begin=1, steps=PERIOD // 2 - 2)
    assert not any(speculation.is_open(step) for step in range(1, PERIOD // 2))
    assert speculation.is_open(PERIOD // 2)


MODEL = StepTimeModel(base=0.01, prefill_token=0.001, prefill_context=1e-6)


@pytest.mark.parametrize(("each", "context"), [(0.003, 0), (0.0001, 0), (0.004, 2000)])
def test_what_draft_tokens_take_is_learned_through_stalls(each: float, context: int) -> None:
    cost, dice = DraftCost(), random.Random(3)
    for _ in range(200):
        stall = 10.0 if dice.random() < 0.2 else 1.0  # the model is right on the mean, so 2.8 times the usual step
        cost.plain_step(stall * 0.01 / 2.8, 0.01)
        stall = 10.0 if dice.random() < 0.2 else 1.0
        cost.draft_step(4, 4.0 * context, stall * (0.01 / 2.8 + 4 * each), 0.01)
    price = MODEL.prefill_token + MODEL.prefill_context * context + cost.surcharge(MODEL)
    assert price == pytest.approx(each, rel=0.05)
    assert cost.level() == pytest.approx(1 / 2.8)


def test_one_odd_step_with_drafts_does_not_move_their_cost() -> None:
    cost = DraftCost()
    cost.draft_step(4, 0.0, 9.0, 0.01)
    assert cost.surcharge(MODEL) == 0.0


def test_a_cost_that_was_measured_too_high_is_corrected_though_no_request_drafts_at_it() -> None:
    config = SchedulerConfig(num_blocks=64, block_size=4, max_num_seqs=8, max_model_length=200, speculation="auto")
    engine = Scheduler(config, LimitController(Limits(max_batched_tokens=64)))
    for _ in range(20):
        engine.speculation.cost.draft_step(4, 0.0, 9.0, 0.01)
    engine.submit(Request("a", list(REPEATING), 150, 0.0))
    asked = []
    model = replace(MODEL, steps=1000)
    while (plan := engine.plan(0.0, model)) is not None:
        asked.append(plan.draft_tokens)
        engine.settle(plan, [1], 0.0)
    assert max(asked) == 1 and 3 <= sum(asked) <= 6


def test_the_state_of_finished_requests_is_dropped() -> None:
    speculation = Speculation("auto")
    request = stream("a")
    speculation.join(request)
    speculation.draft(request, 5, CHEAP)
    speculation.forget("a")
    assert not any(speculation.is_open(step) for step in range(2 * PERIOD))
    speculation.settle("a", 3, 1)
    assert (speculation.drafted, speculation.accepted) == (3, 1)


def test_no_request_drafts_where_a_step_is_predicted_to_take_no_time() -> None:
    assert Price(0.0, 0.01, 0.0).length(0.9, 100) == Price(0.0, 0.0, 0.0).length(1.0, 0) == 0
