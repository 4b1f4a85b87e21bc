"""When the cache is listed again."""

import asyncio

from sluice_operator.cluster.cache import ObjectCache, Resync
from sluice_operator.cluster.cache.resync import INTERVAL, JITTER, QUIET
from sluice_operator.cluster.client import ClusterError, Key, Object
from tests.operator.cluster.cache.test_store import KIND, thing
from tests.operator.virtual_time import run_virtual


def test_it_is_listed_every_ten_minutes_and_after_the_list_of_a_watch() -> None:
    async def lists() -> list[float]:
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def listed(kind: str) -> tuple[list[Object], str]:
            times.append(loop.time())
            if len(times) == 1:
                raise ClusterError("no answer")
            return [thing("a", len(times))], str(len(times))

        woken: list[Key] = []
        resync = Resync(ObjectCache([KIND]), listed, woken.append)
        await resync.fill()
        running = asyncio.create_task(resync.run())
        await asyncio.sleep(INTERVAL * (1 + JITTER) + 1)
        begun = loop.time()
        for _ in range(5):  # a watch lists for five seconds
            resync.request()
            await asyncio.sleep(1)
        await asyncio.sleep(2 * QUIET)
        running.cancel()
        assert woken == [Key("ns", "chat")] * 3
        return [*times, begun]

    first, again, due, requested, begun = run_virtual(lists())
    assert first < again and INTERVAL * (1 - JITTER) <= due - again <= INTERVAL * (1 + JITTER)
    assert 4 + QUIET - 1 <= requested - begun <= 5 + 2 * QUIET
