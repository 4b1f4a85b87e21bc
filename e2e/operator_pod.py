"""The operator as the cluster sees it: installed by Helm, killed, and cut off from one of its writes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Cluster, Object, is_ready, name_of, run, say, wait_for
from e2e.settings import ROOT, Settings

STATUS = "llmdeployments/status"
CRD = "llmdeployments.sluice.dev"


class Operator:
    """One Helm release in a namespace of the same name."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings
        self.release = settings.release

    def install(self) -> None:
        """helm install, as the README says, with this run's images."""
        run(
            "helm", "install", self.release, str(ROOT / "charts/sluice"),
            "--namespace", self.release, "--create-namespace", "--wait", "--timeout", "400s",
            "--set", f"image.repository={self._settings.image_prefix}/operator",
            "--set", f"image.tag={self._settings.image_tag}",
            "--set", f"engine.image.repository={self._settings.image_prefix}/engine",
            "--set", f"engine.image.tag={self._settings.image_tag}",
            *self._crd_settings(),
            timeout=420,
        )  # fmt: skip
        say(f"helm install {self.release}: ready")

    def _crd_settings(self) -> list[str]:
        """The suite takes its CRD away again; one that another release brought is left alone, and said."""
        crd = self._cluster.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}")
        if crd is None:
            return ["--set", "crds.keep=false"]
        say(f"{CRD} is in this cluster already: the story runs on that one")
        return ["--set", "crds.install=false"]

    def uninstall(self) -> None:
        """helm uninstall."""
        command = ("helm", "uninstall", self.release, "--namespace", self.release, "--wait", "--timeout", "180s")
        run(*command, timeout=200)

    def pods(self) -> list[Object]:
        """Its pods."""
        found = self._cluster.get(f"/api/v1/namespaces/{self.release}/pods") or {}
        pods: list[Object] = found.get("items", [])
        return pods

    def kill(self) -> None:
        """SIGKILL, no goodbye: the Lease stays held, nothing is flushed."""
        for pod in self.pods():
            command = ("kubectl", "-n", self.release, "delete", "pod", name_of(pod), "--force", "--grace-period=0")
            run(*command, "--ignore-not-found")
            say(f"operator {name_of(pod)} killed")

    def wait_ready(self, not_before: list[Object]) -> None:
        """Until a pod that is none of `not_before` serves."""
        old = {name_of(pod) for pod in not_before}
        wait_for(
            "a new operator is ready",
            lambda: any(is_ready(pod) and name_of(pod) not in old for pod in self.pods()),
            timeout=300,
        )

    @contextmanager
    def without_status_writes(self) -> Iterator[None]:
        """Takes the right to write the status away and gives it back: a kill now falls between the two writes."""
        roles = [role for role in self._roles() if any(STATUS in rule["resources"] for rule in role["rules"])]
        if not roles:
            raise LookupError(f"no ClusterRole of release {self.release} grants {STATUS}")
        for role in roles:
            self._set_rules(role, [_without(rule) for rule in role["rules"] if _without(rule)["resources"]])
        try:
            yield
        finally:
            for role in roles:
                self._set_rules(role, role["rules"])

    def _roles(self) -> list[Object]:
        found = self._cluster.get("/apis/rbac.authorization.k8s.io/v1/clusterroles") or {}
        mark = "meta.helm.sh/release-name"
        return [r for r in found.get("items", []) if r["metadata"].get("annotations", {}).get(mark) == self.release]

    def _set_rules(self, role: Object, rules: list[Object]) -> None:
        patch = [{"op": "replace", "path": "/rules", "value": rules}]
        run("kubectl", "patch", "clusterrole", name_of(role), "--type=json", "-p", json.dumps(patch))


def _without(rule: Object) -> Object:
    return rule | {"resources": [resource for resource in rule.get("resources", []) if resource != STATUS]}
