"""The operator is killed while limits are tight: the engine returns to its base limits when the TTL ends."""

from dataclasses import dataclass

import pytest

from sluice_engine.limits import LimitChanges, Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_operator.autoscaler.values import Bounds, EngineSample
from sluice_operator.cluster.client import Endpoint
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Profiled
from sluice_sim.traces import poisson
from tests.operator.fake_cluster import KEY, Clock, FakeCluster, Killed, cluster_with, manifest, operator, pod

MODEL = StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6)
STARTED = Limits(concurrency_min=2, concurrency_max=64, max_queue=64, itl_target=0.1, ttft_target=2.0)


@dataclass
class OneEngine:
    """The scraper's side of one simulated engine, in the engine's own virtual time."""

    engine: SimEngine

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        return self.engine.scrape()

    async def patch_limits(
        self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float, ttl: float
    ) -> None:
        if bounds is None:
            return
        changes: LimitChanges = {"concurrency_min": bounds.concurrency_min, "concurrency_max": bounds.concurrency_max}
        self.engine.limits.patch(changes, ttl, self.engine.clock)


class Loop:
    """One operator, one engine and its load; the second replica never comes."""

    def __init__(self) -> None:
        self.clock = Clock()
        config = SchedulerConfig(num_blocks=3000, block_size=16, max_num_seqs=64, max_model_length=8192)
        self.engine = SimEngine(Profiled(MODEL), config, STARTED, self.clock.now)
        self.arrivals = poisson(6.0, 400.0, 60, 40, 1)
        self.sent = 0
        admission = {"concurrency": {"min": 2, "max": 64}}
        slo = {"ttftMilliseconds": 2000, "itlMilliseconds": 100}
        self.cluster: FakeCluster = cluster_with(manifest(admission=admission, slo=slo))
        self.cluster.pods = [pod("chat-1")]
        self.reconciler = operator(self.cluster, OneEngine(self.engine), self.clock)  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.sent < len(self.arrivals) and self.arrivals[self.sent].at + 1000.0 <= until:
            one = self.arrivals[self.sent]
            self.engine.run_until(one.at + 1000.0)
            self.engine.submit(OfferedRequest(self.sent, one, RequestRecord(one.at + 1000.0, one.prompt, one.output)))
            self.sent += 1
        self.engine.run_until(until)
        self.clock.now = until

    async def drive(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            self.pass_time(5.0)
            await self.reconciler.reconcile(KEY)


async def test_tightened_limits_relax_after_their_ttl_without_an_operator() -> None:
    loop = Loop()
    await loop.drive(60)
    assert loop.cluster.deployment["spec"]["replicas"] >= 2
    tight = loop.engine.limits.current.concurrency_max
    assert tight < 20
    loop.cluster.kill_after = len(loop.cluster.writes) + 1
    with pytest.raises(Killed):  # SIGKILL after its next write
        await loop.drive(60)
    died = loop.clock.now
    loop.pass_time(10.0)  # at least three intervals are left before a pass, and the killed one was the first of them
    assert loop.engine.limits.current.concurrency_max == tight
    loop.pass_time(30.0)
    assert loop.clock.now - died == 40.0
    assert loop.engine.limits.current == STARTED
    assert loop.engine.limits.expires_at is None
