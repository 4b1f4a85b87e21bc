"""The status over many passes: what the schema knows, written as rarely as it should be."""

import copy
import json

from sluice_operator.api import LLMDeploymentStatus
from sluice_operator.api.crd import structural_schema
from tests.operator.fake_cluster import (
    KEY,
    Clock,
    Engines,
    cluster_with,
    deployed,
    exposition,
    manifest,
    operator,
    pod,
    settle,
)


async def test_the_status_is_one_the_schema_knows() -> None:
    cluster = cluster_with()
    cluster.pods = [pod("a")]
    await settle(cluster)
    LLMDeploymentStatus.model_validate_json(json.dumps(cluster.status))


async def test_measurements_are_written_at_most_every_thirty_seconds() -> None:
    cluster, engines, clock = cluster_with(), Engines(), Clock()
    cluster.pods = [pod("a")]
    reconciler = operator(cluster, engines, clock)
    changes = 0
    for step in range(24):
        engines.text = exposition(kv_block_seconds_total=2.0 * step * step)
        before = cluster.status.get("kvOccupancyPercent")
        await reconciler.reconcile(KEY)
        changes += before != cluster.status.get("kvOccupancyPercent")
        clock.now += 5
    assert 2 <= changes <= 5


async def test_what_the_schemas_defaults_fill_in_is_no_change() -> None:
    cluster = cluster_with()
    await settle(cluster)
    known = structural_schema(LLMDeploymentStatus)["properties"]
    filled = {name: value["default"] for name, value in known.items() if "default" in value}
    assert {**filled, **cluster.status} == cluster.status


async def test_a_large_fleet_whose_starts_come_one_by_one_writes_them_with_the_numbers() -> None:
    cluster, clock = cluster_with(manifest(scaling={"minReplicas": 24, "maxReplicas": 24})), Clock()
    changes = 0
    text = exposition() + 'sluice_load_phase_seconds{phase="load"} 7\n'
    reconciler = operator(cluster, Engines(text), clock)
    for number in range(24):
        cluster.pods = [*cluster.pods, pod(f"chat-{number}")]
        before = cluster.status.get("coldStarts")
        await reconciler.reconcile(KEY)
        changes += before != cluster.status.get("coldStarts")
        clock.now += 5
    assert 2 <= changes <= 5
    assert len(cluster.status["coldStarts"]) == 16


async def test_a_short_readiness_loss_is_no_cold_start() -> None:
    cluster, clock = deployed(cluster_with(), pod("a")), Clock()
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    learned = cluster.status["coldStarts"]
    assert [entry["total"] for entry in learned] == [10.0]
    ready = cluster.pods[0]["status"]["conditions"][1]
    for status in ("False", "True"):
        ready.update(status=status, lastTransitionTime="2026-11-21T11:00:00Z")
        clock.now += 60
        await reconciler.reconcile(KEY)
    assert cluster.status["coldStarts"] == learned
    cluster.pods.append(copy.deepcopy(cluster.pods[0]))
    cluster.pods[1]["metadata"]["name"] = "b"  # whose start its predecessor did not know
    await operator(cluster, clock=clock).reconcile(KEY)
    assert cluster.status["coldStarts"] == learned
