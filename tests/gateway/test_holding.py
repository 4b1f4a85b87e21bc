"""Requests held while no replica is ready: one wake-up, answered when one comes, told when to come again if none does."""

import asyncio

import aiohttp
import pytest

from sluice_gateway.holding import HoldQueue
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from tests.gateway.test_gateway import CHAT, gateway_of

ONE = Backend("r0", "127.0.0.1", 1)


class Time:
    """A clock that moves by itself at each poll."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


async def test_a_burst_is_held_with_one_wake_up_until_a_replica_is_ready() -> None:
    woken: list[int] = []
    hold_queue = HoldQueue(hold=True, expected=lambda: 60.0, on_change=lambda: woken.append(hold_queue.held), poll=0.0)
    backends: list[Backend] = []
    asked = [asyncio.create_task(hold_queue.wait(lambda: bool(backends))) for _ in range(20)]
    await asyncio.sleep(0)
    assert (hold_queue.held, woken) == (20, [1])
    backends.append(ONE)
    assert await asyncio.gather(*asked) == [True] * 20
    assert (hold_queue.held, woken) == (0, [1, 0])


async def test_the_number_of_held_requests_is_bounded() -> None:
    hold_queue = HoldQueue(hold=True, expected=lambda: 60.0, poll=0.0)
    asked = [asyncio.create_task(hold_queue.wait(lambda: False)) for _ in range(256)]
    await asyncio.sleep(0)
    assert await hold_queue.wait(lambda: False) is False
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert hold_queue.held == 0  # clients that leave are held no longer


@pytest.mark.parametrize(
    ("hold_queue", "method", "path", "retry_after"),
    [
        (HoldQueue(hold=True, expected=lambda: 40.0, clock=Time(), poll=0.0), "POST", CHAT, "40"),  # waited too long
        (HoldQueue(hold=True), "GET", "/v1/models", "2"),  # listing the models does not wake a replica
        (HoldQueue(), "POST", CHAT, "2"),  # a queue that does not hold requests
    ],
)
async def test_a_request_that_is_not_held_gets_a_retry_after(
    hold_queue: HoldQueue, method: str, path: str, retry_after: str
) -> None:
    async with (
        gateway_of(hold_queue=hold_queue) as (gateway, _),
        aiohttp.ClientSession() as session,
        session.request(method, gateway.url + path, json={}) as response,
    ):
        assert (response.status, response.headers["Retry-After"]) == (503, retry_after)
    assert hold_queue.held == 0


def test_a_held_request_waits_until_the_new_replica_was_asked_for_its_limit() -> None:
    fleet = Fleet(lambda: [Backend("r", "127.0.0.1", 1)])
    assert fleet.ready()
    assert not fleet.ready(is_asked=True)
    fleet.states()[0].is_asked = True
    assert fleet.ready(is_asked=True)
