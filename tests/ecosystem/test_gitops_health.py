"""The health checks for Argo CD (Lua) and Flux (CEL), by statuses that the operator writes."""

import json
from pathlib import Path
from typing import Any

import cel
import pytest
import yaml
from lupa.lua51 import LuaRuntime  # Argo CD's interpreter is of Lua 5.1

from sluice import contract
from sluice_operator.cluster.client import Object
from tests.operator.fake_cluster import FakeCluster, cluster_with, deployed, manifest, pod, settle
from tests.operator.reconcile.test_problems import CRASHED

SAMPLES = Path(__file__).parents[2] / "crds/samples/ecosystem"
LUA: str = yaml.safe_load((SAMPLES / "argocd-cm.yaml").read_text())["data"][
    "resource.customizations.health.sluice.dev_LLMDeployment"
]


CHECK: dict[str, str]
(CHECK,) = yaml.safe_load((SAMPLES / "flux.yaml").read_text())["spec"]["healthCheckExprs"]
EXPRESSIONS = {name: CHECK[name] for name in ("inProgress", "failed", "current")}  # in the order of Flux
READY_REASONS = {
    "Asleep", "Conflict", "EngineCrashed", "Fetching", "ImagePullFailed", "InsufficientMemory", "InvalidSpec", "NoReplicas",
    "Paused", "RolledBack", "RollingOut", "RolloutStalled", "Serving", "Starting", "Unschedulable", "WriteRefused",
}  # fmt: skip


def is_true(expression: str, resource: Object) -> bool:
    found = cel.evaluate(expression, resource)
    assert isinstance(found, bool)
    return found


def flux_state(resource: Object) -> str:
    """What Flux makes of its expressions (RFC 0009, `StatusEvaluator.Evaluate` of fluxcd/pkg)."""
    observed = (resource.get("status") or {}).get("observedGeneration")
    if observed is not None and observed != resource["metadata"]["generation"]:
        return "InProgress"
    states = {"inProgress": "InProgress", "failed": "Failed", "current": "Current"}
    return next((states[name] for name, each in EXPRESSIONS.items() if is_true(each, resource)), "InProgress")


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


async def stopped_while_paused() -> Object:
    return await after_passes(deployed(cluster_with(manifest(paused=True))))


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


@pytest.mark.parametrize(
    ("story", "state", "true"),
    [
        (starting, "InProgress", {"inProgress"}),
        (serving, "Current", {"current"}),
        (crashed, "Failed", {"failed"}),
        (invalid, "Failed", {"failed"}),
        (stopped_while_paused, "InProgress", set()),
        (at_zero, "Current", {"current"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_flux_shows_the_state_by_one_expression_at_most(story: Any, state: str, true: set[str]) -> None:
    resource = await story()
    assert {name for name, expression in EXPRESSIONS.items() if is_true(expression, resource)} == true
    assert flux_state(resource) == state


@pytest.mark.parametrize("reason", sorted(READY_REASONS))
async def test_flux_and_argo_cd_agree_on_every_reason_of_the_condition_ready(reason: str) -> None:
    resource = await serving()
    (ready,) = (each for each in resource["status"]["conditions"] if each["type"] == "Ready")
    ready |= {"status": "True" if reason == "Serving" else "False", "reason": reason}
    states = {"Progressing": "InProgress", "Healthy": "Current", "Degraded": "Failed"}
    expected = "InProgress" if reason == "Paused" else states[health(resource)[0]]
    assert flux_state(resource) == expected


async def test_flux_waits_for_the_operator_to_see_a_generation_and_a_resource() -> None:
    resource = await serving()
    resource["metadata"]["generation"] += 1
    assert flux_state(resource) == "InProgress"
    with pytest.raises(RuntimeError, match="status"):  # Flux tries again until its timeout
        flux_state(manifest())


def test_the_expressions_are_those_of_this_kind() -> None:
    assert (CHECK["apiVersion"], CHECK["kind"]) == (contract.API_VERSION, contract.KIND)
    assert tuple(EXPRESSIONS) == ("inProgress", "failed", "current")
