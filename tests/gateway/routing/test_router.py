"""The order in which the router tries replicas: by predicted time to first token, cached prefix, session and turn."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.routing import POLICIES, PolicyName, Prompt, Replica, Router
from sluice_gateway.routing.cache_view import CacheView
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.02, prefill_token=1e-4, prefill_context=1e-9, sequence=1e-3, kv_token=1e-7)


def replica(name: str, **load: Any) -> Replica:
    return Replica(name, model=MODEL, limit=64, output_tokens=100.0, kv_total=100_000.0)._replace(**load)


def prompt(steps: int, tokens: float | None = None, session: str = "") -> Prompt:
    return Prompt(64.0 * steps + 10 if tokens is None else tokens, tuple(range(steps)), 64.0, session)


def names(router: Router, replicas: list[Replica], one: Prompt) -> list[str]:
    return [found.name for found in router.order(replicas, one)]


replicas_drawn = st.lists(
    st.builds(
        Replica,
        name=st.sampled_from("abcdefgh"),
        ready=st.booleans(),
        model=st.sampled_from([None, MODEL, MODEL.scaled(3.0)]),
        running=st.integers(0, 300),
        waiting=st.integers(0, 300),
        limit=st.integers(1, 256),
        prefill_tokens=st.floats(0, 1e6),
        output_tokens=st.floats(0, 1e4),
        kv_held=st.floats(0, 1e6),
        kv_total=st.floats(0, 1e6),
    ),
    unique_by=lambda one: one.name,
    max_size=8,
)
prompts_drawn = st.builds(
    Prompt,
    tokens=st.floats(1, 1e5),
    steps=st.lists(st.integers(0, 50), max_size=30).map(tuple),
    step_tokens=st.floats(1, 512),
    session=st.sampled_from(["", "s", "t"]),
)
policies_drawn = st.sampled_from(sorted(POLICIES))


@given(policies_drawn, st.lists(st.tuples(replicas_drawn, prompts_drawn), max_size=6))
def test_every_replica_is_tried_once_and_unready_ones_last(
    policy: PolicyName, calls: list[tuple[list[Replica], Prompt]]
) -> None:
    router = Router(policy)
    for replicas, one in calls:
        order = router.order(replicas, one)
        assert sorted(r.name for r in order) == sorted(r.name for r in replicas)
        assert [r.ready for r in order] == sorted((r.ready for r in replicas), reverse=True)
        if order:
            router.sent(order[0], one)


@given(policies_drawn, st.lists(st.tuples(replicas_drawn, prompts_drawn), max_size=6))
def test_decisions_are_a_function_of_the_calls(policy: PolicyName, calls: list[tuple[list[Replica], Prompt]]) -> None:
    made: list[list[list[Replica]]] = []
    for _ in range(2):
        router, orders = Router(policy), []
        for replicas, one in calls:
            orders.append(router.order(replicas, one))
            if orders[-1]:
                router.sent(orders[-1][0], one)
        made.append(orders)
    assert made[0] == made[1]


@given(policies_drawn, replicas_drawn, st.lists(prompts_drawn, max_size=6))
def test_a_session_stays_on_its_replica_whatever_the_load(
    policy: PolicyName, replicas: list[Replica], prompts: list[Prompt]
) -> None:
    router, chosen = Router(policy), set()
    for number, one in enumerate(prompts):
        loaded = [each._replace(waiting=each.waiting + 7 * number) for each in replicas]
        order = router.order(loaded, one._replace(session="mine"))
        if order and order[0].ready:
            chosen.add(order[0].name)
            router.sent(order[0], one)
    assert len(chosen) <= 1


def test_only_sessions_of_a_removed_replica_move() -> None:
    router, fleet = Router("PrefixAware"), [replica(name) for name in "abcd"]
    sessions = [f"s{n}" for n in range(200)]
    before = {one: names(router, fleet, prompt(0, session=one))[0] for one in sessions}
    assert set(before.values()) == set("abcd")
    after = {one: names(router, fleet[:3], prompt(0, session=one))[0] for one in sessions}
    assert {one for one in sessions if after[one] != before[one]} == {s for s in sessions if before[s] == "d"}


def test_round_robin_turns() -> None:
    router, fleet = Router("RoundRobin"), [replica(name) for name in "abc"]
    assert [names(router, fleet, prompt(0)) for _ in range(3)] == [list("abc"), list("bca"), list("cab")]
    assert router.order([], prompt(0)) == []


def test_least_loaded_counts_requests_in_flight() -> None:
    fleet = [replica("a", running=3), replica("b", running=1), replica("c", running=1, waiting=1)]
    assert names(Router("LeastLoaded"), fleet, prompt(0)) == ["b", "c", "a"]


def test_a_prompt_goes_to_its_prefix_unless_too_much_waits_there() -> None:
    router, fleet = Router("PrefixAware"), [replica("a"), replica("b"), replica("c")]
    router.sent(fleet[1], prompt(40))
    router.sent(fleet[2], prompt(20))
    assert names(router, fleet, prompt(40)) == ["b", "c", "a"]
    busy = [fleet[0], replica("b", prefill_tokens=60_000.0), fleet[2]]
    assert names(router, busy, prompt(40))[0] == "c"
    router.caches.forget("c")
    assert names(router, fleet, prompt(40))[0] == "b"
    busier = [fleet[0], replica("b", prefill_tokens=120_000.0), fleet[2]]
    assert names(router, busier, prompt(40))[0] in ("a", "c")


def test_a_wait_near_the_target_outweighs_a_cached_prefix() -> None:
    router, fleet = Router("PrefixAware"), [replica("a"), replica("b", prefill_tokens=60_000.0)]
    router.sent(fleet[1], prompt(40))
    assert names(router, fleet, prompt(40))[0] == "b"
    strict = [one._replace(ttft_target=2.0) for one in fleet]  # some 6 s are predicted at b
    assert names(router, strict, prompt(40))[0] == "a"


def test_a_model_with_all_its_time_in_the_context_term_does_not_hide_a_queue() -> None:
    fitted = StepTimeModel(base=0.0, prefill_context=1e-6, kv_token=4e-6)
    fleet = [replica("full", prefill_tokens=20_000.0), replica("idle")]
    fleet = [one._replace(model=fitted) for one in fleet]
    assert names(Router("PrefixAware"), fleet, prompt(10)) == ["idle", "full"]


def test_a_slow_replica_gets_new_conversations_last() -> None:
    fleet = [replica("slow")._replace(model=MODEL.scaled(3.0)), replica("b"), replica("c", running=2)]
    assert names(Router("PrefixAware"), fleet, prompt(10)) == ["b", "c", "slow"]


@pytest.mark.parametrize(
    "load",
    [
        {"running": 64, "waiting": 40},  # the limit is reached
        {"running": 50, "kv_held": 100_000.0},  # the KV cache is full
    ],
)
def test_a_replica_without_room_is_tried_after_one_that_has_more_to_compute(load: dict[str, float]) -> None:
    fleet = [replica("full", **load), replica("busy", running=50, prefill_tokens=8_000.0, kv_held=50_000.0)]
    assert names(Router("PrefixAware"), fleet, prompt(200)) == ["busy", "full"]


def test_only_uncached_tokens_are_expected_to_be_computed() -> None:
    router, fleet = Router("PrefixAware"), [replica("a"), replica("b")]
    router.sent(fleet[1], prompt(4))
    assert [router.uncached_tokens(name, prompt(4)) for name in "ab"] == [266.0, 10.0]
    assert router.uncached_tokens("b", prompt(4, tokens=256.0)) == 1.0  # the last token is always computed
    assert Router("LeastLoaded").uncached_tokens("b", prompt(4)) == 266.0


def test_a_replica_without_a_model_is_taken_to_be_as_slow_as_the_slowest() -> None:
    fleet = [replica("new", prefill_tokens=500.0)._replace(model=None), replica("b")]
    slow = replica("c", prefill_tokens=200.0)._replace(model=MODEL.scaled(3.0))
    assert names(Router("PrefixAware"), [*fleet, slow], prompt(10)) == ["b", "c", "new"]
    alone = [one._replace(model=None) for one in fleet]
    assert names(Router("PrefixAware"), alone, prompt(10)) == ["b", "new"]


@pytest.mark.parametrize("policy", ["PrefixAware", "LeastLoaded"])
def test_of_equal_replicas_those_of_the_gateways_zone_come_first(policy: PolicyName) -> None:
    fleet = [replica("far", other_zone=True), replica("near-1"), replica("near-2")]
    router = Router(policy)
    assert [names(router, fleet, prompt(0))[-1] for _ in range(6)] == ["far"] * 6


@pytest.mark.parametrize("policy", ["PrefixAware", "LeastLoaded"])
def test_a_zone_outweighs_no_queue(policy: PolicyName) -> None:
    fleet = [replica("far", other_zone=True), replica("near", running=64, waiting=8)]
    assert names(Router(policy), fleet, prompt(0))[0] == "far"


def test_a_given_view_of_the_caches_is_used_although_it_is_empty() -> None:
    view = CacheView()
    assert Router("PrefixAware", view).caches is view
