"""A gateway over two revisions of a model: which one a request goes to, and what is counted of each."""

from collections import Counter

import pytest
from aiohttp import web

from sluice_gateway.routing import Canary, draw_of
from tests.gateway.engines import FakeEngine, gateway_over, load_document
from tests.gateway.test_fleet import chat, chosen, metric

TRIAL = frozenset({"new"})
# A session is the header's value after the tenant and the salt, both empty here.
SESSIONS = [f"s{n}" for n in range(40)]
OF_CANARY = {session for session in SESSIONS if draw_of(f"//{session}") < 0.3}


def engines(**load: object) -> list[FakeEngine]:
    return [FakeEngine("old-1"), FakeEngine("old-2"), FakeEngine("new", load_document(**load))]


async def fails(_: web.Request) -> web.StreamResponse:
    return web.json_response({"from": "new"}, status=500)


async def test_sessions_keep_their_revision_and_their_replica() -> None:
    canaries = {"chat": Canary(0.3, TRIAL)}
    assert 5 < len(OF_CANARY) < 20
    async with gateway_over(*engines(), canaries=canaries, session_header="x-session-id") as gateway:
        found = {each: {await chosen(gateway, chat("a"), x_session_id=each) for _ in range(3)} for each in SESSIONS}
    assert {session for session, names in found.items() if names == {"new"}} == OF_CANARY
    assert all(len(names) == 1 for names in found.values())
    assert {name for names in found.values() for name in names} == {"old-1", "old-2", "new"}


async def test_requests_without_a_session_follow_the_weight() -> None:
    async with gateway_over(*engines(), canaries={"chat": Canary(0.3, TRIAL)}) as gateway:
        found = Counter([await chosen(gateway, chat("a")) for _ in range(200)])
    assert 30 <= found["new"] <= 90  # five standard deviations


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
async def test_a_canary_that_is_not_ready_loses_no_request(share: float) -> None:
    async with gateway_over(*engines(ready=False), canaries={"chat": Canary(share, TRIAL)}) as gateway:
        found = Counter([await chosen(gateway, chat("a")) for _ in range(20)])
    assert set(found) == {"old-1", "old-2"}


async def test_a_canary_that_refuses_connections_loses_no_request() -> None:
    three = engines()
    async with gateway_over(*three, canaries={"chat": Canary(1.0, TRIAL)}) as gateway:
        await three[2].stop()
        found = Counter([await chosen(gateway, chat("a")) for _ in range(10)])
    assert set(found) == {"old-1", "old-2"}


async def test_without_a_stable_replica_the_canary_serves_beyond_its_weight() -> None:
    three = engines()
    async with gateway_over(*three, canaries={"chat": Canary(0.0, TRIAL)}) as gateway:
        await three[0].stop()
        await three[1].stop()
        assert [await chosen(gateway, chat("a")) for _ in range(4)] == ["new"] * 4


async def test_a_full_stable_revision_sends_nothing_more_to_the_canary() -> None:
    full = [FakeEngine("old-1", load_document(running=1, limit=1)), FakeEngine("new")]
    async with gateway_over(*full, canaries={"chat": Canary(0.0, TRIAL)}) as gateway:
        assert [await chosen(gateway, chat("a")) for _ in range(4)] == ["old-1"] * 4


async def test_the_answers_of_each_revision_are_counted() -> None:
    three = engines()
    three[2].answer = fails
    canaries = {"chat": Canary(1.0, TRIAL)}
    async with gateway_over(*three, canaries=canaries, admin_port=0) as gateway:
        await chosen(gateway, chat("a"))
        canaries["chat"] = Canary(0.0, TRIAL)
        for _ in range(2):
            await chosen(gateway, chat("a"))
        name = "sluice_gateway_revision_requests_total"
        assert await metric(gateway, f'{name}{{result="error",revision="canary"}} 1.0')
        assert await metric(gateway, f'{name}{{result="met",revision="stable"}} 2.0')
        assert await metric(gateway, f'{name}{{result="met",revision="canary"}} 0.0')
