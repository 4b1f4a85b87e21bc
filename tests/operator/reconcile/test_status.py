"""The status over many passes: what the schema knows, written as rarely as it should be."""

import json

from sluice_operator.api import LLMDeploymentStatus
from sluice_operator.api.crd import structural_schema
from tests.operator.fake_cluster import (
    KEY,
    Clock,
    Engines,
    cluster_with,
    exposition,
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


async def test_an_old_status_in_another_format_is_replaced_by_one_that_the_schema_accepts() -> None:
    cluster = cluster_with()
    old = {"kvOccupancyPercent": 43.2, "reason": "Serving", "coldStarts": [{"pod": "a", "total": 9.5}]}
    record = {"time": "2026-11-21T08:00:00Z", "kind": "replicas", "to": 1, "reason": "MinReplicas"}
    decisions = [record | {"numbers": {"growth": 1.5}}, record]
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-11-21T08:00:00Z"}
    status = old | {"decisions": decisions, "conditions": [ready], "observedGeneration": 1}
    cluster.store.set_status("LLMDeployment", KEY.namespace, KEY.name, status)
    await settle(cluster)
    LLMDeploymentStatus.model_validate_json(json.dumps(cluster.status), strict=True)
    assert cluster.status["decisions"][0] == record
