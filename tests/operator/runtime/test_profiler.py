"""The profile of the operator: folded stacks over HTTP, only where it is asked for, one at a time."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import unused_port

from sluice_operator.metrics import OperatorMetrics
from sluice_operator.runtime.health import Health
from sluice_operator.runtime.profiler import folded, profile


def outer() -> str:
    return inner()


def inner() -> str:
    return folded(sys._getframe())


def test_a_stack_is_one_line_with_the_outermost_call_first() -> None:
    assert outer().endswith("test_profiler.py:outer;test_profiler.py:inner")


def test_a_profile_counts_the_stacks_of_one_thread_for_so_long() -> None:
    frame = sys._getframe()
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    text = profile(0.5, 7, frames=lambda: {7: frame, 8: frame}, clock=lambda: now, sleep=sleep)
    (line,) = text.splitlines()
    stack, _, count = line.rpartition(" ")
    assert stack == folded(frame)
    assert 49 <= int(count) <= 51


def test_a_thread_that_has_ended_has_an_empty_profile() -> None:
    ticks = iter((0.0, 0.0, 2.0))
    assert profile(1, -1, clock=lambda: next(ticks), sleep=lambda _: None) == ""


@asynccontextmanager
async def served(has_profiler: bool) -> AsyncIterator[Callable[[str], Awaitable[tuple[int, str]]]]:
    health = Health(lambda: "", OperatorMetrics(), has_profiler=has_profiler)
    port = unused_port()
    await health.start(port)
    async with ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status, await answer.text()

        yield get
    await health.close()


async def test_there_is_no_profile_unless_it_is_asked_for() -> None:
    async with served(has_profiler=False) as get:
        assert (await get("/healthz"))[0] == 200
        assert (await get("/debug/profile"))[0] == 404


async def test_the_profile_shows_the_event_loop() -> None:
    async with served(has_profiler=True) as get:
        status, text = await get("/debug/profile?seconds=1")
    assert status == 200
    assert all(line.rpartition(" ")[2].isdecimal() for line in text.splitlines())
    assert "base_events.py:BaseEventLoop.run_forever" in text


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "soon"])
async def test_a_wrong_duration_is_refused_with_a_sentence(seconds: str) -> None:
    async with served(has_profiler=True) as get:
        status, text = await get(f"/debug/profile?seconds={seconds}")
    assert (status, text) == (400, f"seconds is {seconds!r}: it must be an integer from 1 to 60\n")
