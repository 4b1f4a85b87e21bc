"""Limits reach engines whatever else goes wrong, outlive a late pass, and are missed in a condition where they do not."""

import itertools
from copy import deepcopy
from dataclasses import replace

import pytest

from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import from_environment
from tests.operator.fake_cluster import KEY, Clock, Engines, FakeCluster, cluster_with, manifest, operator, pod


async def serving(**spec: object) -> tuple[FakeCluster, Engines, Reconciler]:
    """A replica that serves, after two passes."""
    cluster, engines = cluster_with(manifest(**spec)), Engines()
    reconciler = operator(cluster, engines, Clock())
    cluster.pods = [pod("a")]
    for _ in range(2):
        await reconciler.reconcile(KEY)
    return cluster, engines, reconciler


def refuse(cluster: FakeCluster, kind: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no child of this kind is written."""
    allowed = cluster.apply

    async def apply(manifest: Object, *, owner: Object | None = None) -> Object:
        if manifest["kind"] == kind:
            raise ClusterError(f"{kind}: refused", status=status)
        return await allowed(manifest, owner=owner)

    monkeypatch.setattr(cluster, "apply", apply)


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "Deployment"])
@pytest.mark.parametrize("status", [403, 500])
async def test_limits_are_sent_although_a_child_is_rejected(
    kind: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, engines, reconciler = await serving(slo={"itlMilliseconds": 70, "ttftMilliseconds": 3000})
    refuse(cluster, kind, status, monkeypatch)
    engines.patched.clear()
    assert isinstance(reconciler.context.clock, Clock)
    reconciler.context.clock.now += 60  # the children are looked at again
    for number in range(1, 4):
        with pytest.raises(ClusterError):
            await reconciler.reconcile(KEY)
        assert len(engines.patched) == number
    _, _, bounds = engines.patched[-1]
    assert (bounds.itl_target, bounds.ttft_target) == (0.07, 3.0)


@pytest.mark.parametrize("interval", [0.5, 5.0, 15.0, 300.0])
async def test_limits_outlive_two_late_passes(interval: float) -> None:
    cluster, engines = cluster_with(), Engines()
    settings = from_environment({"SLUICE_INTERVAL_SECONDS": str(interval)})
    reconciler = Reconciler(replace(operator(cluster, engines).context, settings=settings))
    cluster.pods = [pod("a")]
    assert await reconciler.reconcile(KEY) == interval
    await reconciler.reconcile(KEY)
    assert engines.lasting and min(engines.lasting) >= 3 * interval


async def test_a_failed_patch_is_a_condition_with_a_next_step_until_it_succeeds() -> None:
    cluster, engines, reconciler = await serving()
    assert cluster.condition("AdmissionActive")["status"] == "True"
    engines.refusal = "answered 401 to PATCH /limits: Writes need the admin token."
    await reconciler.reconcile(KEY)
    found = cluster.condition("AdmissionActive")
    assert (found["status"], found["reason"]) == ("False", "LimitsNotSet")
    assert "1 of 1 engines" in found["message"] and "pod a answered 401" in found["message"]
    assert "restart the pod" in found["message"]
    assert cluster.condition("MetricsAvailable")["status"] == "True"
    engines.refusal = ""
    await reconciler.reconcile(KEY)
    assert cluster.condition("AdmissionActive")["reason"] == "Auto"


async def test_a_failed_patch_is_reported_beside_a_rejected_child(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, engines, reconciler = await serving()
    refuse(cluster, "Deployment", 403, monkeypatch)
    engines.refusal = "did not answer PATCH /limits"
    with pytest.raises(ClusterError):
        await reconciler.reconcile(KEY)
    assert cluster.condition("AdmissionActive")["reason"] == "LimitsNotSet"


async def test_a_changed_routing_changes_neither_a_child_nor_a_limit() -> None:
    cluster, engines, reconciler = await serving()
    before, usual = deepcopy(cluster.deployment), len(cluster.writes)
    await reconciler.reconcile(KEY)
    unchanged, limits = cluster.writes[usual:], engines.patched[-1]
    cluster.writes.clear()
    engines.patched.clear()
    cluster.edit(routing={"policy": "RoundRobin", "sessionHeader": "x-session-id"})
    await reconciler.reconcile(KEY)
    assert cluster.deployment == before
    assert cluster.writes == [*unchanged, "status"]  # its observedGeneration
    assert engines.patched == [limits]


@pytest.mark.parametrize("mode", ["Auto", "Fixed", "Off"])
async def test_a_changed_slo_is_in_the_config_map_and_rolls_nothing(mode: str) -> None:
    cluster, engines, reconciler = await serving(admission={"mode": mode})
    before, mounted = cluster.deployment["spec"], cluster.store.get("ConfigMap", "ns", "chat-targets")
    engines.patched.clear()
    cluster.edit(slo={"itlMilliseconds": 123}, admission={"mode": mode})
    await reconciler.reconcile(KEY)
    after = cluster.store.get("ConfigMap", "ns", "chat-targets")
    assert mounted is not None and after is not None and mounted["data"] != after["data"]
    assert '"itl_target_ms": 123' in after["data"]["targets.json"]
    assert cluster.deployment["spec"] == before
    assert bool(engines.patched) == (mode != "Off")


async def test_a_loading_pod_that_takes_no_limits_yet_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    cluster, engines, reconciler = await serving(scaling={"minReplicas": 2, "maxReplicas": 2})
    running = [{"name": "engine", "restartCount": 0, "state": {"running": {"startedAt": "2026-11-21T08:00:03Z"}}}]
    scheduled = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T08:00:01Z"}]
    cluster.pods = [
        pod("a", ready=False, podIP="10.0.0.1", conditions=scheduled, containerStatuses=running, phase="Running")
    ]
    engines.refusal = "did not answer PATCH /limits: connection refused"
    await reconciler.reconcile(KEY)
    assert cluster.condition("AdmissionActive")["reason"] != "LimitsNotSet"
    assert "limits not set" not in caplog.text


async def test_limits_that_are_in_force_are_not_sent_again_until_they_expire_soon() -> None:
    admission = {"mode": "Fixed", "concurrency": {"min": 8, "max": 8}}  # what the engine reports
    _, engines, reconciler = await serving(admission=admission)
    clock = reconciler.context.clock
    assert isinstance(clock, Clock)
    engines.patched.clear()
    times = []
    for _ in range(24):
        clock.now += 5
        before = len(engines.patched)
        await reconciler.reconcile(KEY)
        times += [clock.now] * (len(engines.patched) - before)
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {25.0}
    assert set(engines.lasting) == {40.0}


async def test_an_engine_that_reports_other_limits_is_sent_them_at_once() -> None:
    admission = {"mode": "Fixed", "concurrency": {"min": 8, "max": 8}}
    _, engines, reconciler = await serving(admission=admission)
    engines.patched.clear()
    assert engines.text is not None
    await reconciler.reconcile(KEY)
    assert engines.patched == []
    engines.text = engines.text.replace('kind="concurrency_max"} 8.0', 'kind="concurrency_max"} 64.0')  # restarted
    await reconciler.reconcile(KEY)
    assert [name for name, _, _ in engines.patched] == ["a"]
