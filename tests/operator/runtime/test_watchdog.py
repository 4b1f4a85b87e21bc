"""A dead or silent watch ends the process; a quiet one does not."""

import asyncio

from sluice_operator.cluster.client import Key
from sluice_operator.runtime.watchdog import WATCHER_PREFIX, Watchdog
from tests.operator.fake_cluster import Clock

KEY = Key("ns", "chat")


async def forever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ConnectionResetError("reset by peer")


def watcher(work: object) -> "asyncio.Task[None]":
    return asyncio.create_task(work, name=f"{WATCHER_PREFIX}llmdeployments@None")  # type: ignore[arg-type]


async def test_a_live_watcher_is_healthy_however_quiet() -> None:
    clock, task = Clock(), watcher(forever())
    dog = Watchdog(clock=clock)
    dog.start()
    clock.now += 10_000
    assert dog.fault() == ""
    task.cancel()


async def test_a_failed_watcher_is_a_fault_with_its_error() -> None:
    clock = Clock()
    dog = Watchdog(clock=clock)
    dog.start()
    task = watcher(fail())
    assert dog.fault() == ""
    await asyncio.wait({task})
    assert dog.fault() == "the watcher for llmdeployments@None has ended: reset by peer"


async def test_cancelled_watchers_get_time_for_the_process_to_end_in_order() -> None:
    clock = Clock()
    dog = Watchdog(clock=clock)
    dog.start()
    task = watcher(forever())
    dog.fault()
    task.cancel()
    await asyncio.wait({task})
    assert dog.fault() == ""
    clock.now += 16
    assert "has ended: cancelled" in dog.fault()


async def test_a_change_that_only_the_sweep_lists_is_a_fault() -> None:
    clock, task = Clock(), watcher(forever())
    dog = Watchdog(clock=clock)
    dog.start()
    dog.delivered(KEY, "1")
    clock.now += 1
    dog.list_finished({KEY: "1"}, dog.list_started())
    clock.now += 1000
    assert dog.fault() == ""
    dog.list_finished({KEY: "2"}, dog.list_started())
    clock.now += 74
    dog.list_finished({KEY: "3"}, dog.list_started())
    assert dog.fault() == ""
    clock.now += 2
    assert "ns/chat" in dog.fault()
    task.cancel()


async def test_a_late_delivery_clears_the_fault() -> None:
    clock, task = Clock(), watcher(forever())
    dog = Watchdog(clock=clock)
    dog.start()
    dog.list_finished({KEY: "2"}, dog.list_started())
    clock.now += 60
    dog.delivered(KEY, "2")
    clock.now += 60
    assert dog.fault() == ""
    dog.list_finished({}, dog.list_started())
    task.cancel()


async def test_a_resource_created_during_a_list_request_is_not_undelivered() -> None:
    clock, task = Clock(), watcher(forever())
    dog = Watchdog(clock=clock)
    dog.start()
    asked = dog.list_started()
    clock.now += 1
    dog.delivered(KEY, "7")  # ADDED, after the API server made the list
    clock.now += 1
    dog.list_finished({}, asked)
    for _ in range(10):
        clock.now += 30
        dog.list_finished({KEY: "7"}, dog.list_started())
        assert dog.fault() == ""
    task.cancel()


async def test_a_change_delivered_during_a_list_request_is_not_undelivered() -> None:
    clock, task = Clock(), watcher(forever())
    dog = Watchdog(clock=clock)
    dog.start()
    dog.delivered(KEY, "1")
    asked = dog.list_started()
    clock.now += 1
    dog.delivered(KEY, "2")
    dog.list_finished({KEY: "1"}, asked)
    clock.now += 100
    assert dog.fault() == ""
    task.cancel()


async def test_no_watcher_after_a_minute_is_a_fault() -> None:
    clock = Clock()
    dog = Watchdog(clock=clock)
    dog.start()
    clock.now += 61
    assert "no watcher has started" in dog.fault()


async def test_a_standby_is_healthy() -> None:
    clock = Clock()
    dog = Watchdog(clock=clock)
    clock.now += 10_000
    assert dog.fault() == ""


async def test_run_returns_the_fault() -> None:
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    dog = Watchdog(clock=clock, sleep=sleep)
    dog.start()
    assert "no watcher has started" in await dog.run()
