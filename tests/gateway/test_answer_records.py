"""Replicas whose answers contradict what they publish: one that only seems idle and fast, and one that fails at once."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sluice_gateway.replicas.answer_record import (
    AGREES,
    CONTRADICTED,
    ENOUGH,
    FAILING_SECONDS,
    FAILURES,
    LEAST_SECONDS,
    SMOOTHED,
    AnswerRecord,
)
from sluice_gateway.routing import Canary
from sluice_gateway.server import Gateway
from tests.gateway.engines import CHAT, FakeEngine, Handler, gateway_over, load_document
from tests.gateway.test_fleet import ask, chat

LIE: dict[str, Any] = {
    "limit": 1e12,
    "step_model": {"base": 0.0, "prefill_token": 0.0, "prefill_context": 0.0, "sequence": 0.0, "kv_token": 0.0},
}


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def streams(name: str, clock: Clock, seconds: dict[str, float]) -> Handler:
    """The answer of an engine whose streams begin after so many seconds."""

    async def answer(request: web.Request) -> web.StreamResponse:
        clock.now += seconds[name]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "x-name": name})
        await response.prepare(request)
        await response.write(b"data: [DONE]\n\n")
        return response

    return answer


async def shares(gateway: Gateway, requests: int) -> Counter[str]:
    """How many of the requests, which come one after the other, each replica gets."""
    found = Counter[str]()
    async with aiohttp.ClientSession() as client:
        for number in range(requests):
            async with client.post(gateway.url + CHAT, json=chat(f"{number}")) as response:
                assert await response.read()
                found[response.headers["x-name"]] += 1
    return found


async def test_a_load_that_first_bytes_contradict_is_not_used_until_they_agree_with_it_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, seconds = Clock(), {"liar": 20.0, "honest": 0.02}
    engines = [
        FakeEngine("liar", load_document(**LIE), streams("liar", clock, seconds)),
        FakeEngine("honest", answer=streams("honest", clock, seconds)),
    ]
    async with gateway_over(*engines) as gateway:
        gateway.fleet.clock = clock
        assert await shares(gateway, ENOUGH) == {"liar": ENOUGH}
        assert (await shares(gateway, 20))["honest"] >= 8  # in turn: both are idle
        assert [line for line in caplog.messages if "liar" in line] == [
            "replica liar answers 80 times later than its load predicts: its load is not used"
        ]
        seconds["liar"] = 0.02
        while not (found := [line for line in caplog.messages if "is used again" in line]):
            await shares(gateway, 20)
        assert found == ["replica liar answers as its load predicts: its load is used again"]


async def test_answers_that_come_whole_and_honest_streams_contradict_no_load() -> None:
    clock, seconds = Clock(), {"r0": 1.0}

    async def whole(_: web.Request) -> web.Response:
        clock.now += 60.0
        return web.json_response({}, headers={"x-name": "r0"})

    engine = FakeEngine("r0", answer=whole)
    async with gateway_over(engine) as gateway:
        gateway.fleet.clock = clock
        (state,) = gateway.fleet.states()
        for answer in (whole, streams("r0", clock, seconds)):
            engine.answer = answer
            await shares(gateway, 2 * ENOUGH)
            assert not state.record.is_contradicted


async def failing(_: web.Request) -> web.Response:
    return web.json_response({"from": "failing"}, status=500)


async def test_a_replica_that_fails_requests_at_once_does_not_get_those_that_busy_ones_would_serve() -> None:
    clock, release, arrived = Clock(), asyncio.Event(), asyncio.Semaphore(0)

    async def busy(_: web.Request) -> web.Response:
        arrived.release()
        await release.wait()
        return web.json_response({"from": "busy"})

    bad = FakeEngine("failing", answer=failing)
    async with gateway_over(bad, FakeEngine("busy", answer=busy)) as gateway:
        gateway.fleet.clock = clock
        asked = []
        for number in range(40):  # each is at a replica before the next one comes
            asked.append(asyncio.create_task(ask(gateway, chat(f"{number}"))))
            at_busy = asyncio.create_task(arrived.acquire())
            await asyncio.wait({asked[-1], at_busy}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            at_busy.cancel()
        release.set()
        assert Counter(status for status, _ in await asyncio.gather(*asked)) == {200: 40 - FAILURES, 500: FAILURES}
        clock.now += FAILING_SECONDS  # then one request is enough to see that it still fails
        assert len(bad.seen) == FAILURES
        found = Counter([(await ask(gateway, chat(f"again {n}")))[0] for n in range(10)])
        assert found == {200: 9, 500: 1}
        clock.now += FAILING_SECONDS
        bad.answer = None
        assert len({str((await ask(gateway, chat(f"{n} healed")))[1]["from"]) for n in range(4)}) == 2


@pytest.mark.parametrize("canaries", [{}, {"chat": Canary(1.0, frozenset({"failing"}))}], ids=["all", "canary"])
async def test_where_all_replicas_of_a_revision_fail_they_still_get_its_requests(canaries: dict[str, Canary]) -> None:
    engines = [FakeEngine("failing", answer=failing), *([FakeEngine("stable")] if canaries else [])]
    async with gateway_over(*engines, canaries=canaries) as gateway:
        assert [(await ask(gateway, chat("a")))[0] for _ in range(3 * FAILURES)] == [500] * 3 * FAILURES


def test_the_ratio_counts_after_enough_streams_and_returns_below_its_lower_bound() -> None:
    record, late = AnswerRecord(), 2 * CONTRADICTED * LEAST_SECONDS
    assert [record.first_byte(0.0, late) for _ in range(ENOUGH)] == [False] * (ENOUGH - 1) + [True]
    changes = [record.first_byte(0.0, 0.0) for _ in range(2 * SMOOTHED)]
    assert (changes.count(True), record.is_contradicted) == (1, False)
    assert record.ratio < AGREES
    steady = AnswerRecord()
    assert not any(steady.first_byte(1.0, 0.9 * CONTRADICTED) for _ in range(4 * SMOOTHED))


def test_a_success_ends_the_sequence_of_failures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    record = AnswerRecord()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            assert not record.failed(0.0)
        record.succeeded()
    assert not record.is_failing(0.0)
