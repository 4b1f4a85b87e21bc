"""Who is told of a replica that is on its way, and when nobody needs to wait for one."""

from typing import Any

import pytest

from sluice_operator.autoscaler.settings import LAW
from tests.operator.fake_cluster import KEY, Clock, Engines, cluster_with, deployed, manifest, operator, pod


class Short:
    """One replica serves, after a start of 10 s, and the second of two loads."""

    def __init__(self, **spec: Any) -> None:
        cluster = cluster_with(manifest(scaling={"minReplicas": 2, "maxReplicas": 4}, **spec))
        self.engines, self.clock = Engines(), Clock()
        container = {"name": "engine", "restartCount": 0, "state": {"running": {}}}
        self.loading = pod("b", ready=False, podIP="10.0.0.2", containerStatuses=[container])
        self.cluster = deployed(cluster, pod("a"), self.loading)
        self.reconciler = operator(self.cluster, self.engines, self.clock)

    async def told(self, seconds: float = 0.0) -> dict[str, float]:
        """Who is told what in a pass that is so many seconds later."""
        self.clock.now += seconds
        self.engines.told.clear()
        await self.reconciler.reconcile(KEY)
        return dict(self.engines.told)


@pytest.mark.parametrize("admission", [{}, {"admission": {"mode": "Off"}}])
async def test_each_engine_gets_the_retry_after_of_the_missing_replica(admission: dict[str, Any]) -> None:
    short = Short(**admission)
    await short.told()
    least = LAW.usual_scrape_seconds
    assert [await short.told(2.0) for _ in range(3)] == [{"a": left, "b": left} for left in (8.0, 6.0, least)]


async def test_no_retry_after_is_sent_once_all_replicas_are_ready() -> None:
    short = Short()
    await short.told()
    assert (await short.told(2.0))["a"] == 8.0
    short.cluster.pods = [pod("a"), pod("b")]
    assert await short.told(2.0) == {"a": 0.0, "b": 0.0}


async def test_a_replacement_pod_adds_no_retry_after() -> None:
    short = Short()
    await short.told()
    short.cluster.pods = [pod("a"), pod("c"), short.loading]  # a rollout's one more than wanted
    assert await short.told(2.0) == {"a": 0.0, "c": 0.0, "b": 8.0}


async def test_an_engine_that_does_not_answer_yet_gets_no_limits() -> None:
    short = Short()
    short.engines.text = None
    await short.told()
    assert await short.told(2.0) == {}
