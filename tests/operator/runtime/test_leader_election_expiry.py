"""At any latency of the API server, no process acts on a Lease that another may have taken. Time is virtual."""

import asyncio
from dataclasses import dataclass

import pytest
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kubernetes.aio.client import ApiClient, Configuration

from sluice_operator.cluster.client import ClusterError
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.cluster.lease import KubeLease, LeaseRecord
from sluice_operator.runtime.leader_election import Election, Times
from tests.operator.virtual_time import VirtualLoop, run_virtual

TIMES = Times()
FOREVER = 1e6


@dataclass
class Shelf:
    """A Lease with optimistic locking."""

    record: LeaseRecord | None = None
    writes: int = 0

    def write(self, version: str | None, holder: str, duration: float) -> bool:
        if version != (None if self.record is None else self.record.version):
            return False
        self.writes += 1
        self.record = LeaseRecord(holder, duration, str(self.writes))
        return True


@dataclass
class SlowLink:
    """One candidate's way to the shelf: each call takes the next latency, half of it before the effect."""

    shelf: Shelf
    latencies: list[float]
    calls: int = 0

    async def _there(self) -> float:
        back = self.latencies[self.calls % len(self.latencies)] / 2
        self.calls += 1
        await asyncio.sleep(back)
        return back

    async def read(self) -> LeaseRecord | None:
        back = await self._there()
        record = self.shelf.record
        await asyncio.sleep(back)
        return record

    async def create(self, holder: str, duration: float) -> bool:
        return await self._write(None, holder, duration)

    async def replace(self, record: LeaseRecord, holder: str, duration: float) -> bool:
        return await self._write(record.version, holder, duration)

    async def _write(self, version: str | None, holder: str, duration: float) -> bool:
        back = await self._there()
        won = self.shelf.write(version, holder, duration)
        await asyncio.sleep(back)
        return won


def candidate(link: SlowLink, name: str) -> Election:
    return Election(link, name, TIMES, clock=asyncio.get_running_loop().time)


async def test_a_candidate_may_not_act_before_it_holds_the_lease() -> None:
    assert candidate(SlowLink(Shelf(), [0.0]), "a").remaining() <= 0


def test_a_holder_whose_renewals_hang_stops_at_the_renew_deadline() -> None:
    async def story() -> tuple[str, float]:
        link = SlowLink(Shelf(), [1.995])  # of the first attempt: it ends after 3.99 s, and counts from its beginning
        election, began = candidate(link, "a"), asyncio.get_running_loop().time()
        await election.acquire()
        link.latencies = [FOREVER]
        why = await election.hold()
        assert election.remaining() <= 0
        return why, asyncio.get_running_loop().time() - began

    why, held = run_virtual(story())
    assert "could not be renewed" in why
    assert held == pytest.approx(TIMES.renew_deadline)  # 15.98 s once, of a Lease of 15


LATENCIES = st.lists(st.sampled_from([0.0, 0.1, 0.9, 1.9, 1.995, 3.0, 3.9, 4.1, FOREVER]), min_size=1, max_size=8)
FINE = [0.1]
CUT_OFF = [FOREVER]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LATENCIES, LATENCIES, st.floats(0.0, 30.0)), max_size=3))
@example([(FINE, FINE, 0.0), (CUT_OFF, FINE, 0.0)])
@example([(FINE, FINE, 30.0)])
def test_two_processes_never_act_at_once_at_any_latency_or_pause(
    weather: list[tuple[list[float], list[float], float]],
) -> None:
    async def story() -> tuple[set[str], list[float]]:
        """Who acted, and when both did."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        shelf, acted, both = Shelf(), set(), []
        links = {name: SlowLink(shelf, FINE) for name in ("a", "b")}
        elections = {name: candidate(links[name], name) for name in links}

        async def lead(name: str) -> None:
            while True:
                await elections[name].acquire()
                await elections[name].hold()

        async def watch() -> None:
            while True:
                acting = [name for name in elections if elections[name].remaining() > 0]
                acted.update(acting)
                both.extend([loop.time()] * (len(acting) == 2))
                await asyncio.sleep(0.25)

        tasks = [asyncio.create_task(work) for work in (lead("a"), lead("b"), watch())]
        for of_a, of_b, pause in weather:
            links["a"].latencies, links["b"].latencies = of_a, of_b
            await asyncio.sleep(30.0)
            loop.jump(pause)
        for link in links.values():
            link.latencies = FINE
        await asyncio.sleep(30.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return acted, both

    acted, both = run_virtual(story())
    assert acted and not both


async def test_a_write_is_not_sent_after_the_lease_and_not_waited_for_beyond_it() -> None:
    asked: list[str] = []
    gate = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if request.method == "POST":
            await gate.wait()
        return web.json_response({"items": [], "metadata": {}})

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    left = 0.0
    async with ApiClient(configuration=Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        cluster = KubeClient(client, lease=lambda: left)
        assert await cluster.list("Pod", "ns", {}) == []  # reading needs no Lease
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "ns"}}
        with pytest.raises(ClusterError, match="not sent: this process no longer holds the Lease"):
            await cluster.create(made)
        assert asked == ["GET"]
        left = 0.05
        with pytest.raises(ClusterError, match="no answer within"):
            await cluster.create(made)
        assert asked == ["GET", "POST"]
        gate.set()
    await runner.cleanup()


async def test_the_lease_is_renewed_while_every_request_of_the_passes_hangs() -> None:
    hanging, gate, record = 0, asyncio.Event(), {"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "a"}}
    saturated = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal hanging
        if request.path.endswith("/leases/chat"):
            return web.json_response(record)
        hanging += 1
        if hanging == 12:
            saturated.set()
        await gate.wait()
        return web.json_response({"items": [], "metadata": {}})

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    configuration.connection_pool_maxsize = 16  # as connect() sets it
    async with ApiClient(configuration=configuration) as client:
        cluster = KubeClient(client)
        passes = [asyncio.create_task(cluster.list("Pod", "ns", {})) for _ in range(40)]
        await saturated.wait()
        found = await KubeLease(client, "ns", "chat").read()
        assert found is not None and (found.holder, found.version) == ("a", "7")
        assert hanging == 12
        gate.set()
        await asyncio.gather(*passes)
    await runner.cleanup()
