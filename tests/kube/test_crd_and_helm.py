"""The CRD and Helm on a real API server: installed before the chart, by another release, upgraded, kept."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.commands.crds import crd_text
from tests.kube.api_server import ApiServer
from tests.kube.helm import CHART, CRD, NAME, Helm, HelmFailed, apply_crd, remove_crd, wait_until

Object = dict[str, Any]

MODELS = "/apis/sluice.dev/v1alpha1/namespaces/default/llmdeployments"
MODEL: Object = {
    "apiVersion": "sluice.dev/v1alpha1",
    "kind": "LLMDeployment",
    "metadata": {"name": "chat"},
    "spec": {"model": {"uri": "pvc://models/tiny"}, "scaling": {"minReplicas": 1, "maxReplicas": 4}},
}


@pytest.fixture
def release(helm: Helm, api_server: ApiServer) -> Iterator[str]:
    """The name of a release, removed with the CRD at the end."""
    yield "sluice"
    for name in ("sluice", "other"):
        helm("uninstall", name, "--namespace", name, "--ignore-not-found")
    remove_crd(api_server)


def is_of_this_version(server: ApiServer) -> bool:
    found = (server.get(CRD) or {})["spec"]["versions"][0]["schema"]
    here = yaml.safe_load(crd_text())["spec"]["versions"][0]["schema"]
    return fields(found["openAPIV3Schema"]) == fields(here["openAPIV3Schema"])


def fields(schema: Object, path: str = "") -> set[str]:
    """The names of all fields."""
    found = {path}
    for name, inner in (schema.get("properties") or {}).items():
        found |= fields(inner, f"{path}.{name}")
    return found


def create_model(server: ApiServer) -> Object:
    wait_until(lambda: server.get(MODELS) is not None)
    return server.request("POST", MODELS, MODEL)


def pause(server: ApiServer) -> Object:
    """Set spec.paused, which an API server without the field prunes."""
    return server.request("PATCH", f"{MODELS}/chat", {"spec": {"paused": True}}, "application/merge-patch+json")


def adopt_by_metadata(server: ApiServer, release: str) -> None:
    """What the README's `kubectl label` and `kubectl annotate` do."""
    prefix = "meta.helm.sh/release-"
    annotations = {f"{prefix}name": release, f"{prefix}namespace": release}
    metadata = {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": annotations}
    server.request("PATCH", CRD, {"metadata": metadata}, "application/merge-patch+json")


def test_helm_refuses_a_crd_that_was_applied_before_the_chart(api_server: ApiServer, helm: Helm, release: str) -> None:
    apply_crd(api_server)
    with pytest.raises(HelmFailed, match=f"{NAME}.* exists and cannot be imported into the current release"):
        helm.install(release)


def test_take_ownership_installs_over_a_crd_that_was_applied_before(
    api_server: ApiServer, helm: Helm, release: str
) -> None:
    apply_crd(api_server)
    uid = create_model(api_server)["metadata"]["uid"]
    helm.install(release, "--take-ownership", "--force-conflicts")
    helm.upgrade(release)
    assert is_of_this_version(api_server)
    assert (api_server.get(f"{MODELS}/chat") or {})["metadata"]["uid"] == uid


def test_a_crd_with_the_releases_metadata_is_adopted(api_server: ApiServer, helm: Helm, release: str) -> None:
    apply_crd(api_server)
    adopt_by_metadata(api_server, release)
    helm.install(release, "--force-conflicts")
    assert is_of_this_version(api_server)


def test_a_release_without_the_crd_installs_beside_it(api_server: ApiServer, helm: Helm, release: str) -> None:
    apply_crd(api_server)
    helm.install(release, "--set", "crds.install=false")
    assert "meta.helm.sh/release-name" not in (api_server.get(CRD) or {})["metadata"].get("annotations", {})


def test_an_upgrade_brings_new_fields_and_keeps_the_resources(
    api_server: ApiServer, helm: Helm, release: str, tmp_path: Path
) -> None:
    helm.install(release, chart=older_chart(tmp_path))
    uid = create_model(api_server)["metadata"]["uid"]
    assert "paused" not in pause(api_server)["spec"]
    helm.upgrade(release)
    assert is_of_this_version(api_server)
    wait_until(lambda: pause(api_server)["spec"].get("paused") is True)
    assert (api_server.get(f"{MODELS}/chat") or {})["metadata"]["uid"] == uid


def test_an_uninstalled_release_keeps_the_crd_and_another_release_takes_it_over(
    api_server: ApiServer, helm: Helm, release: str
) -> None:
    helm.install(release)
    uid = create_model(api_server)["metadata"]["uid"]
    helm("uninstall", release, "--namespace", release)
    helm.install(release)
    helm("uninstall", release, "--namespace", release)
    with pytest.raises(HelmFailed, match="cannot be imported into the current release"):
        helm.install("other")
    helm.install("other", "--take-ownership")
    assert (api_server.get(f"{MODELS}/chat") or {})["metadata"]["uid"] == uid


def older_chart(folder: Path) -> Path:
    """The chart as if this version had added a field: its CRD lacks `spec.paused`."""
    chart = folder / "sluice"
    shutil.copytree(CHART, chart)
    path = chart / "files/sluice.dev_llmdeployments.yaml"
    crd = yaml.safe_load(path.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["paused"]
    path.write_text(yaml.safe_dump(crd))
    return chart
