"""The roles of operator and gateway are complete and minimal, by the requests that their code makes."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice_operator.settings import Settings, from_environment
from tests.operator.security.authorizing_api_server import AuthorizingApiServer
from tests.operator.security.chart_objects import NAMESPACE, environment, stored
from tests.operator.security.chart_objects import VARIANTS as VARIANTS_OF_CHART
from tests.operator.security.permissions import Attributes, Permission, permissions_of
from tests.operator.security.scenarios import operate, route, watch_by_kopf
from tests.operator.test_chart import operator_rules

VARIANTS = {"default": "", "one_namespace": "apps"}
NAMESPACES = {
    "apiGroups": [""],
    "resources": ["namespaces"],
    "verbs": ["list", "watch"],
}  # of a release for the cluster


def permissions(component: str, variant: str = "default") -> frozenset[Permission]:
    return permissions_of(
        {"operator": "blue-sluice", "gateway": "blue-sluice-gateway"}[component], NAMESPACE, stored(variant)
    )


def settings(variant: str) -> Settings:
    return replace(from_environment({**environment(variant), "POD_NAMESPACE": NAMESPACE}), hub_endpoint="")


def test_the_stored_role_is_that_of_the_chart() -> None:
    """Also where Helm is not installed to render it."""
    (role,) = (each for each in stored("default", "ClusterRole") if each["metadata"]["name"] == "blue-sluice")
    assert role["rules"] == [*operator_rules(), NAMESPACES]


async def requests(component: str, variant: str, folder: Path, given: frozenset[Permission]) -> AuthorizingApiServer:
    async with AuthorizingApiServer(given).running() as server:
        if component == "operator":
            await operate(server, settings(variant), folder)
        else:
            await route(server, [VARIANTS[variant]] if VARIANTS[variant] else [])
        return server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return tmp_path


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("component", ["operator", "gateway"])
async def test_the_roles_allow_every_request_and_each_permission_is_needed(
    component: str, variant: str, folder: Path
) -> None:
    given = permissions(component, variant)
    server = await requests(component, variant, folder, given)
    assert server.refused == set()
    assert server.needed == given


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_each_of_several_namespaces_has_the_role_of_a_single_one(component: str) -> None:
    def rights(variant: str, namespace: str) -> set[tuple[str, str, str]]:
        given = (each for each in permissions(component, variant) if each.namespace == namespace)
        return {(each.group, each.resource, each.verb) for each in given}

    one, two = permissions(component, "one_namespace"), permissions(component, "two_namespaces")
    assert {each.namespace for each in one} == {"apps", NAMESPACE}
    assert {each.namespace for each in two} == {"apps", "models", NAMESPACE}
    for namespace in ("apps", "models", NAMESPACE):
        assert rights("two_namespaces", namespace) == rights("one_namespace", namespace.replace("models", "apps"))


@pytest.mark.parametrize("variant", [each for each in VARIANTS_OF_CHART if each != "no_gateway"])
def test_the_gateway_may_watch_the_endpoints_of_the_service_that_it_finds_its_zone_in(variant: str) -> None:
    (gateway,) = (each for each in stored(variant, "Deployment") if each["metadata"]["name"] == "blue-sluice-gateway")
    arguments = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
    (service,) = (each.removeprefix("--service=") for each in arguments if each.startswith("--service="))
    namespace, _, name = service.partition("/")
    assert name in {each["metadata"]["name"] for each in stored(variant, "Service")}
    for verb in ("list", "watch"):
        asked = Attributes(namespace, "discovery.k8s.io", "endpointslices", verb)
        assert any(asked.is_allowed_by(each) for each in permissions("gateway", variant))


async def test_several_namespaces_are_watched_without_a_right_to_the_cluster(folder: Path) -> None:
    async with AuthorizingApiServer(permissions("operator", "two_namespaces")).running() as server:
        await watch_by_kopf(server, settings("two_namespaces"), folder, namespaces=("apps", "models"))
        assert server.refused == set()


@pytest.mark.parametrize("removed", sorted(permissions("operator")), ids=str)
async def test_the_operator_is_refused_a_request_without_the_permission(removed: Permission, folder: Path) -> None:
    server = await requests("operator", "default", folder, permissions("operator") - {removed})
    assert {(each.group, each.resource, each.verb) for each in server.refused} == {
        (removed.group, removed.resource, removed.verb)
    }


@pytest.mark.parametrize("removed", sorted(permissions("gateway")), ids=str)
async def test_the_gateway_is_refused_a_request_without_the_permission(removed: Permission, folder: Path) -> None:
    server = await requests("gateway", "default", folder, permissions("gateway") - {removed})
    assert {(each.group, each.resource, each.verb) for each in server.refused} == {
        (removed.group, removed.resource, removed.verb)
    }
