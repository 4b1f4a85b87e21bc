"""`spec.routing`: each model has its own policy and session header, and a change applies to the next request."""

from collections import Counter
from typing import Any

import pytest

from sluice_gateway.cluster.catalog import ClusterCatalog
from sluice_gateway.cluster.models import served_model
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.routing import Prompt, Routing
from tests.engine.server.transport.test_connection_limits import until
from tests.gateway.cluster.documents import by_name, deployment
from tests.gateway.cluster.test_cluster_gateway import Known, serving
from tests.gateway.test_fleet import LONG, chat, chosen
from tests.gateway.test_kv_feeds import TIMES, FeedingEngine

PROMPT = Prompt(1000.0, (1, 2, 3), 250.0)


def known(**routings: dict[str, Any]) -> Known:
    """A directory with one model per entry, of this `spec.routing`."""
    directory = Known()
    route(directory, **routings)
    return directory


def route(directory: Known, **routings: dict[str, Any]) -> None:
    """The API server says so now."""
    directory.set_deployments("", by_name(*(deployment(name, routing=each) for name, each in routings.items())))


async def test_two_models_of_one_gateway_have_a_policy_each() -> None:
    directory = known(chat={}, search={"policy": "RoundRobin"})
    async with serving(directory) as (gateway, _):
        for name in ("chat", "search") * 2:
            await directory.add(name)
        await gateway.scraper.scrape()
        found = {"chat": Counter[object](), "search": Counter[object]()}
        for _ in range(4):  # in turn: the turn of each model is its own
            for name, seen in found.items():
                seen[await chosen(gateway, chat(LONG, model=name))] += 1
    assert sorted(found["chat"].values()) == [4]  # by the cached prefix
    assert sorted(found["search"].values()) == [2, 2]


async def test_a_change_of_the_policy_applies_to_the_next_request_and_keeps_the_replicas() -> None:
    directory = known(chat={"policy": "RoundRobin"})
    async with serving(directory) as (gateway, _):
        for _ in range(2):
            await directory.add("chat")
        await gateway.scraper.scrape()
        before = gateway.fleet.states()
        assert len({str(await chosen(gateway, chat(LONG))) for _ in range(4)}) == 2
        route(directory, chat={"policy": "PrefixAware"})
        assert len({str(await chosen(gateway, chat(LONG))) for _ in range(4)}) == 1
        route(directory, chat={"policy": "RoundRobin"})
        assert len({str(await chosen(gateway, chat(LONG))) for _ in range(4)}) == 2
        after = gateway.fleet.states()
        assert all(old is new for old, new in zip(before, after, strict=True))


async def test_two_models_of_one_gateway_have_a_session_header_each() -> None:
    directory = known(
        chat={"policy": "RoundRobin", "sessionHeader": "x-chat"},
        search={"policy": "RoundRobin", "sessionHeader": "x-user"},
    )
    async with serving(directory) as (gateway, _):
        for name in ("chat", "search") * 3:
            await directory.add(name)
        await gateway.scraper.scrape()

        async def replicas(model: str, **headers: str) -> int:
            return len({str(await chosen(gateway, chat("a", model=model), **headers)) for _ in range(6)})

        assert await replicas("chat", x_chat="mine") == 1
        assert await replicas("chat", x_user="mine") == 3
        assert await replicas("search", x_user="mine") == 1
        assert await replicas("search", x_chat="mine") == 3
        route(directory, chat={"policy": "RoundRobin"}, search={"policy": "RoundRobin", "sessionHeader": "x-chat"})
        assert await replicas("chat", x_chat="mine") == 3
        assert await replicas("search", x_chat="mine") == 1


async def test_a_request_that_names_no_model_is_routed_as_the_only_one() -> None:
    directory = known(chat={"policy": "RoundRobin"})
    async with serving(directory) as (gateway, _):
        for _ in range(2):
            await directory.add("chat")
        await gateway.scraper.scrape()
        body = {"messages": chat(LONG)["messages"]}
        assert len({str(await chosen(gateway, body)) for _ in range(4)}) == 2


def test_what_the_owner_does_not_say_is_as_the_gateway_was_told() -> None:
    directory = known(chat={}, search={"policy": "LeastLoaded"}, other={"sessionHeader": "x-chat"})
    catalog, default = ClusterCatalog(directory, str), Routing("RoundRobin", "x-session-id")
    assert catalog.routing("chat", default) == default
    assert catalog.routing("search", default) == Routing("LeastLoaded", "x-session-id")
    assert catalog.routing("other", default) == Routing("RoundRobin", "x-chat")
    assert catalog.routing("none", default) == catalog.routing(None, default) == default


@pytest.mark.parametrize("policy", ["Random", 3, None])
def test_a_policy_that_only_a_newer_release_has_is_as_none(policy: object) -> None:
    assert served_model(deployment("chat", routing={"policy": policy})).policy is None


def test_a_removed_model_leaves_no_router() -> None:
    names = {"a", "b"}
    backends = [Backend(name, "h", 1, model=name) for name in "ab"]
    fleet = Fleet(lambda: backends, models=lambda: names)
    for name in "ab":
        fleet.end(fleet.begin(fleet.order(PROMPT, name)[0], PROMPT))
    assert set(fleet._routers) == {"a", "b"}
    names.remove("a")
    names.add("c")
    backends[0] = Backend("c", "h", 1, model="c")
    fleet.order(PROMPT, "c")
    assert set(fleet._routers) == {"b", "c"}


def test_a_policy_that_reads_no_caches_expects_none() -> None:
    policies = {"chat": Routing("PrefixAware")}
    backend = Backend("r0", "h", 1, model="chat")
    fleet = Fleet(lambda: [backend], lambda model: policies[model or ""], models=lambda: policies)
    (state,) = fleet.states()
    fleet.first_byte(fleet.begin(state, PROMPT))
    assert fleet.begin(state, PROMPT).expected == 750.0
    policies["chat"] = Routing("RoundRobin")
    assert fleet.begin(state, PROMPT).expected == 0.0


async def test_events_of_caches_are_followed_for_models_whose_policy_reads_them() -> None:
    directory = known(chat={}, search={"policy": "RoundRobin"})
    async with serving(directory, kv_feeds=TIMES) as (gateway, _):
        engines = {name: FeedingEngine(name) for name in ("chat", "search")}
        for name, engine in engines.items():
            await engine.start()
            directory.engines.append((engine, name))
        await until(lambda: len(engines["chat"].readers) == 1)
        assert not engines["search"].asked
        route(directory, chat={"policy": "LeastLoaded"}, search={})
        await until(lambda: len(engines["search"].readers) == 1)
        states = {state.backend.name: state for state in gateway.fleet.states()}
        await until(lambda: states["search"].is_followed and not states["chat"].is_followed)
