"""Passes over one key never overlap, wake-ups are never lost, errors back off, the bound holds."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable

from sluice_operator.cluster.client import ClusterError, Key
from sluice_operator.runtime.workqueue import Workers

A, B = Key("ns", "a"), Key("ns", "b")


async def spin(turns: int = 50) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


class Sleeps:
    """Sleeps that are counted; short ones end at once, the interval only when told."""

    def __init__(self, longest: float = 0.4) -> None:
        self.asked: list[float] = []
        self.longest = longest

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await (asyncio.sleep(0) if seconds <= self.longest else asyncio.Event().wait())


def workers(reconcile: Callable[[Key], Awaitable[float]], sleeps: Sleeps, limit: int = 10) -> Workers:
    return Workers(reconcile, limit=limit, gap=0.1, sleep=sleeps)


async def test_wake_ups_during_a_pass_lead_to_exactly_one_more() -> None:
    passes: Counter[Key] = Counter()
    running = 0
    gate = asyncio.Event()

    async def reconcile(key: Key) -> float:
        nonlocal running
        running += 1
        assert running == 1
        passes[key] += 1
        await gate.wait()
        running -= 1
        return 5.0

    group = workers(reconcile, Sleeps())
    group.wake(A)
    await spin()
    for _ in range(100):
        group.wake(A)
    gate.set()
    await spin()
    assert passes[A] == 2
    await group.close()


async def test_keys_run_side_by_side_up_to_the_limit() -> None:
    running, most = 0, 0
    gate = asyncio.Event()

    async def reconcile(key: Key) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return 5.0

    group = workers(reconcile, Sleeps(), limit=3)
    for number in range(20):
        group.wake(Key("ns", str(number)))
    await spin()
    gate.set()
    await spin(200)
    assert most == 3
    await group.close()


async def test_errors_back_off_up_to_the_cap_and_spare_the_others() -> None:
    passes: Counter[Key] = Counter()

    async def reconcile(key: Key) -> float:
        passes[key] += 1
        if key == A and passes[A] <= 12:
            raise ClusterError("500") if passes[A] % 2 else RuntimeError("a bug")
        return 5.0

    sleeps = Sleeps(longest=20.0)
    sleeps.longest = 4.0

    async def patient(seconds: float) -> None:
        sleeps.asked.append(seconds)
        await (asyncio.Event().wait() if seconds == 4.9 else asyncio.sleep(0))

    group = Workers(reconcile, gap=0.1, backoff_cap=15.0, sleep=patient)
    group.wake(A)
    group.wake(B)
    await spin(400)
    waits = [seconds for seconds in sleeps.asked if seconds not in (0.1, 4.9)]
    assert passes[A] == 13 and passes[B] == 1
    assert len(waits) == 12 and max(waits) <= 15.0 and waits[-1] >= 7.5 and waits[0] <= 1.0
    await group.close()


async def test_a_pass_is_not_repeated_before_the_time_that_the_api_server_asks_for_within_a_bound() -> None:
    asks = [7.0, 3600.0, 0.0]

    async def reconcile(key: Key) -> float:
        if asks:
            raise ClusterError("429", status=429, retry_after=asks.pop(0))
        return 5.0

    waits: list[float] = []

    async def patient(seconds: float) -> None:
        waits.append(seconds)
        await (asyncio.Event().wait() if seconds == 4.9 else asyncio.sleep(0))

    group = Workers(reconcile, gap=0.1, backoff_cap=15.0, sleep=patient)
    group.wake(A)
    await spin(100)
    first, second, third = waits[:3]
    assert (first, second) == (7.0, 30.0) and third <= 4.0
    await group.close()


async def test_the_key_of_a_deleted_resource_has_no_worker_until_it_is_woken_again() -> None:
    passes = 0

    async def reconcile(key: Key) -> float:
        nonlocal passes
        passes += 1
        return math.inf

    group = workers(reconcile, Sleeps())
    group.wake(A)
    await spin()
    assert group.keys == frozenset()
    group.wake(A)
    await spin()
    assert passes == 2
    await group.close()


async def test_close_ends_every_worker() -> None:
    async def reconcile(key: Key) -> float:
        await asyncio.Event().wait()
        return 1.0

    group = workers(reconcile, Sleeps())
    group.wake(A)
    await spin()
    await group.close()
    assert group.keys == frozenset()


async def test_a_wake_up_after_the_end_starts_nothing() -> None:
    passes: Counter[Key] = Counter()

    async def reconcile(key: Key) -> float:
        passes[key] += 1
        return 5.0

    group = workers(reconcile, Sleeps())
    group.wake(A)
    await spin()
    await group.close()
    group.wake(A)
    group.wake(B)
    await spin()
    assert passes == Counter({A: 1})
    assert not group.keys


async def test_the_passes_of_many_keys_are_spread_over_the_interval() -> None:
    sleeps, now = Sleeps(longest=0.1), 1000.0

    async def reconcile(_: Key) -> float:
        return 30.0

    group = Workers(reconcile, limit=200, gap=0.1, sleep=sleeps, clock=lambda: now)
    for number in range(200):
        group.wake(Key("ns", f"model-{number}"))
    await spin(50)
    turns = [(now + seconds + 0.1) % 30.0 for seconds in sleeps.asked if seconds > 0.1]
    assert len(turns) == 200
    assert all(15 <= sum(turn // 5 == slot for turn in turns) <= 60 for slot in range(6))  # 33 if they were even
    assert all(15.0 <= seconds + 0.1 <= 45.0 for seconds in sleeps.asked if seconds > 0.1)
    await group.close()
