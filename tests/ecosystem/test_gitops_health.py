"""The health checks for Argo CD (Lua) and Flux (CEL), by statuses that the operator writes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime  # Argo CD's interpreter is of Lua 5.1

from sluice_operator.cluster.client import Object
from tests.operator.fake_cluster import FakeCluster, cluster_with, deployed, manifest, pod, settle
from tests.operator.reconcile.test_problems import CRASHED

SAMPLES = Path(__file__).parents[2] / "crds/samples/ecosystem"
LUA: str = yaml.safe_load((SAMPLES / "argocd-cm.yaml").read_text())["data"][
    "resource.customizations.health.sluice.dev_LLMDeployment"
]


def health(resource: Object) -> tuple[str, str]:
    """Status and message that Argo CD would show."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals()["obj"] = lua.table_from(json.loads(json.dumps(resource)), recursive=True)
    found = lua.execute(LUA)
    return str(found["status"]), str(found["message"])


async def after_passes(cluster: FakeCluster) -> Object:
    await settle(cluster)
    return cluster.resource


async def starting() -> Object:
    return await after_passes(cluster_with())


async def serving() -> Object:
    return await after_passes(deployed(cluster_with(), pod("a")))


async def crashed() -> Object:
    return await after_passes(deployed(cluster_with(), pod("a", ready=False, **CRASHED)))


async def invalid() -> Object:
    return await after_passes(cluster_with(manifest(scaling={"minReplicas": 5, "maxReplicas": 2})))


async def paused() -> Object:
    return await after_passes(deployed(cluster_with(manifest(paused=True)), pod("a")))


async def at_zero() -> Object:
    return await after_passes(cluster_with(manifest(scaling={"mode": "External"}, replicas=0)))


@pytest.mark.parametrize(
    ("story", "status"),
    [
        (starting, "Progressing"),
        (serving, "Healthy"),
        (crashed, "Degraded"),
        (invalid, "Degraded"),
        (paused, "Suspended"),
        (at_zero, "Healthy"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_argo_cd_shows_the_state_with_the_conditions_message(story: Any, status: str) -> None:
    resource = await story()
    shown, message = health(resource)
    conditions = {each["type"]: each for each in resource["status"]["conditions"]}
    source = conditions["Paused" if status == "Suspended" else "Ready"]
    assert shown == status, conditions["Ready"]
    assert message.endswith(source["message"])


async def test_a_resource_that_no_operator_has_seen_is_progressing() -> None:
    assert health(manifest())[0] == "Progressing"
    resource = await serving()
    resource["metadata"]["generation"] += 1
    assert health(resource) == ("Progressing", "The operator has not seen this generation yet.")


def test_flux_waits_for_the_same_reasons_as_argo_cd() -> None:
    (check,) = yaml.safe_load((SAMPLES / "flux.yaml").read_text())["spec"]["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == ("sluice.dev/v1alpha1", "LLMDeployment")
    for reason in ("Starting", "Fetching", "RollingOut"):
        assert f"{reason} = true" in LUA and f"'{reason}'" in check["inProgress"] and f"'{reason}'" in check["failed"]
    for reason in ("Asleep", "NoReplicas"):
        assert f"{reason} = true" in LUA and f"'{reason}'" in check["current"] and f"'{reason}'" in check["failed"]
