"""Gateways that do not know each other's requests send a conversation to one replica, where its load allows."""

import random

from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.routing import Prompt, Router
from sluice_gateway.routing.other_gateways import own_step
from sluice_gateway.server import Gateway
from tests.gateway.engines import FakeEngine, gateway_over
from tests.gateway.routing.test_router import names, replica
from tests.gateway.test_fleet import LONG, chat, chosen

FLEET = [replica(name) for name in "abcd"]
SYSTEM = tuple(range(4))


def turn(conversation: int, number: int) -> Prompt:
    """A turn of a conversation, four steps longer than the one before, after a system prompt that all have."""
    steps = (*SYSTEM, *(1000 * conversation + step for step in range(4 * number)))
    return Prompt(64.0 * len(steps) + 10, steps, 64.0)


def gateways(*, is_partial: bool) -> list[Router]:
    """Two gateways, each of which has sent the system prompt to every replica."""
    found = [Router("PrefixAware"), Router("PrefixAware")]
    for router in found:
        router.caches.is_partial = is_partial
        for each in FLEET:
            router.sent(each, Prompt(64.0 * len(SYSTEM), SYSTEM, 64.0))
    return found


def agreed(*, is_partial: bool) -> int:
    """Of 100 conversations those of which two gateways would choose one replica, after other requests of their own."""
    routers = gateways(is_partial=is_partial)
    for number in range(7):
        routers[0].order(FLEET, turn(200 + number, 1))
    return sum(len({names(router, FLEET, turn(each, 1))[0] for router in routers}) == 1 for each in range(1, 101))


def test_two_gateways_choose_the_same_idle_replica_for_a_conversation() -> None:
    assert agreed(is_partial=True) == 100
    assert agreed(is_partial=False) < 50


def test_a_later_turn_goes_where_the_other_gateway_sent_the_first() -> None:
    first, second = gateways(is_partial=True)
    for each in range(1, 41):
        (chosen_first, *_) = first.order(FLEET, turn(each, 1))
        first.sent(chosen_first, turn(each, 1))
        assert names(second, FLEET, turn(each, 2))[0] == chosen_first.name
        assert names(first, FLEET, turn(each, 2))[0] == chosen_first.name


def test_conversations_spread_over_the_replicas() -> None:
    router, _ = gateways(is_partial=True)
    counts = [names(router, FLEET, turn(each, 1))[0] for each in range(400)]
    assert all(60 < counts.count(name) < 140 for name in "abcd")


def test_the_preferred_replica_is_left_where_it_is_busier() -> None:
    router, _ = gateways(is_partial=True)
    (preferred, *_) = names(router, FLEET, turn(1, 8))
    busy = [each._replace(prefill_tokens=60_000.0) if each.name == preferred else each for each in FLEET]
    assert names(router, busy, turn(1, 8))[0] != preferred


def test_a_cached_prefix_counts_more_than_what_another_gateway_may_have_cached() -> None:
    router, _ = gateways(is_partial=True)
    (preferred, other, *_) = router.order(FLEET, turn(1, 2))
    router.sent(other, turn(1, 1))
    assert names(router, FLEET, turn(1, 2))[0] == other.name != preferred.name


def test_a_replica_that_is_not_ready_is_not_preferred() -> None:
    router, _ = gateways(is_partial=True)
    (preferred, *_) = names(router, FLEET, turn(1, 2))
    away = [each._replace(ready=each.name != preferred) for each in FLEET]
    assert len({names(router, away, turn(1, 2))[0] for _ in range(8)}) == 1
    assert names(router, away, turn(1, 2))[-1] == preferred


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=8), st.integers(0, 30))
def test_the_own_step_is_one_of_the_prompt_and_does_not_depend_on_the_order(cached: list[float], steps: int) -> None:
    prompt = Prompt(64.0 * steps + 10, tuple(range(100, 100 + steps)), 64.0)
    mixed = random.Random(0).sample(cached, len(cached))
    found = own_step(prompt, cached)
    assert found == own_step(prompt, mixed)
    assert found is None or found in prompt.steps


def test_a_prompt_that_most_replicas_have_whole_has_no_own_step() -> None:
    prompt = Prompt(256.0, SYSTEM, 64.0)
    assert own_step(prompt, [256.0, 256.0, 0.0]) is None
    assert own_step(prompt, [256.0, 128.0, 0.0]) == 2


async def test_gateways_that_are_told_of_each_other_agree() -> None:
    engines = [FakeEngine(f"r{number}") for number in range(4)]
    async with gateway_over(*engines) as one:
        other = Gateway(lambda: [engine.backend for engine in engines], one._options)
        async with other:
            await other.scraper.scrape()
            for each in (one, other):
                each.shared_by(2)
            await chosen(other, chat("hello"))  # their turns differ from here on
            for number in range(6):
                text = f"{number} {LONG}"
                assert await chosen(one, chat(text)) == await chosen(other, chat(text, "It is a table.", "And then?"))
            one.shared_by(1)
            assert not one.fleet.caches.is_partial and other.fleet.caches.is_partial
