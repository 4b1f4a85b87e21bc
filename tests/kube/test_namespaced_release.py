"""A release by a user who owns two namespaces and has no right in the cluster, on a real API server."""

from collections.abc import Iterator

import pytest

from tests.kube.api_server import ApiServer, Object
from tests.kube.helm import Helm, HelmFailed, apply_crd, remove_crd, wait_until

USER = "tenant"
NAMESPACES = ("tenant-system", "apps", "models")
NAMESPACED = ("--set", "watchNamespaces={apps,models}", "--set", "crds.install=false", "--kube-as-user", USER)
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def tenant(api_server: ApiServer, helm: Helm) -> Iterator[None]:
    """Three namespaces in which the user may do everything, and the CRD, which an administrator installed."""
    # Helm first reads /version, which a new API server allows to users once it has stored its own roles.
    wait_until(lambda: api_server.get(f"{RBAC}/clusterrolebindings/system:public-info-viewer") is not None)
    apply_crd(api_server)
    for namespace in NAMESPACES:
        api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        path = f"{RBAC}/namespaces/{namespace}"
        api_server.request("POST", f"{path}/roles", {"metadata": {"name": "all"}, "rules": rules})
        binding: Object = {"metadata": {"name": "all"}, "roleRef": role, "subjects": [subject]}
        api_server.request("POST", f"{path}/rolebindings", binding)
    yield
    helm("uninstall", "sluice", "--namespace", NAMESPACES[0], "--ignore-not-found")
    remove_crd(api_server)


def test_a_release_in_namespaces_needs_no_right_in_the_cluster(api_server: ApiServer, helm: Helm, tenant: None) -> None:
    with pytest.raises(HelmFailed, match=r"clusterroles.* is forbidden"):
        helm.install("sluice", *NAMESPACED, namespace=NAMESPACES[0])
    helm("uninstall", "sluice", "--namespace", NAMESPACES[0], "--ignore-not-found")
    helm.install("sluice", *NAMESPACED, "--set", "rbac.aggregateRoles=false", namespace=NAMESPACES[0])
    for namespace in ("apps", "models"):
        assert api_server.get(f"{RBAC}/namespaces/{namespace}/roles/sluice") is not None
        assert api_server.get(f"{RBAC}/namespaces/{namespace}/rolebindings/sluice-gateway") is not None
    assert api_server.get(f"{RBAC}/clusterroles/sluice") is None
    assert api_server.get(f"{RBAC}/clusterroles/sluice-gateway") is None
