"""The operator's Helm release in the cluster: install, measure, stop, kill, and deny one of its writes."""

import json
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.framework.cluster import Cluster, Object, is_ready, name_of, parse_metrics, run, say, wait_for
from e2e.framework.manifests import PYTHON
from e2e.framework.settings import ROOT, Settings
from sluice import contract

STATUS = "llmdeployments/status"
CRD = "llmdeployments.sluice.dev"
CHART = ROOT / "charts/sluice"
REPLICAS = 2  # the chart's default
HELM_RELEASE = "meta.helm.sh/release-name"  # annotation of every object of a release
_HEALTH_PORT = 8080  # of the chart
# Process 1 is dumb-init, and the operator is its child.
_READ_MEMORY = "child, *_ = open('/proc/1/task/1/children').read().split(); print(open(f'/proc/{child}/status').read())"


@dataclass(frozen=True)
class Memory:
    """Resident memory of the operator's process in bytes: current, and the peak since the process started."""

    now: int
    peak: int

    def __str__(self) -> str:
        return f"{self.now / 1e6:.0f} MB, at its highest {self.peak / 1e6:.0f} MB"


def most_memory(resources: int) -> float:
    """Bytes that an operator may have at its highest with so many resources: 90 MB at rest, and 300 MB with 1,000."""
    return 90e6 + 210e6 * resources / 1000


class Operator:
    """One Helm release. All releases of a run share the namespace that the first is named after."""

    def __init__(self, cluster: Cluster, settings: Settings, name: str = "") -> None:
        self._cluster, self._settings = cluster, settings
        self.namespace = settings.release
        self.release = name or settings.release
        of_release = f"app.kubernetes.io/instance={self.release},app.kubernetes.io/name="
        self._selector, self._gateways = f"{of_release}sluice-operator", f"{of_release}sluice-gateway"

    def install(self, *values: str, until_ready: bool = True) -> None:
        """Run helm install as in the README, with this run's images and further `--set` values."""
        wait = [] if until_ready else ["--wait=false"]
        self._helm("install", CHART, "--create-namespace", *wait, *_set(*self._crd_values(), *values))

    def upgrade(self, chart: Path = CHART, values: Sequence[str] = ()) -> None:
        """Run helm upgrade to `chart` with the values of the installation and further `--set` values."""
        self._helm("upgrade", chart, *_set(*self._crd_values(), *values))

    def test(self) -> str:
        """Run helm test, as its user does, and return what it says. Raises CommandFailed."""
        said = run("helm", "test", self.release, "--namespace", self.namespace, "--timeout", "180s", timeout=200)
        say(f"helm test {self.release}: {' '.join(said.split())}")
        return said

    def _helm(self, verb: str, chart: Path, *options: str) -> None:
        images = _set(
            f"image.repository={self._settings.image_prefix}/operator",
            f"image.tag={self._settings.image_tag}",
            f"engine.image.repository={self._settings.image_prefix}/engine",
            f"engine.image.tag={self._settings.image_tag}",
        )
        # The suite's clients are in the models' namespace and call their Services beside the gateway.
        clients = _set("networkPolicy.namespaceClients=Always") if chart == CHART else []
        command = ("helm", verb, self.release, str(chart), "--namespace", self.namespace, "--wait", "--timeout", "400s")
        run(*command, *images, *clients, *options, timeout=420)
        say(f"helm {verb} {self.release}: done")

    def _crd_values(self) -> list[str]:
        """Helm values for the CRD: the suite removes its own CRD, and keeps one that another release installed."""
        crd = self._cluster.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}")
        if crd is None or crd["metadata"].get("annotations", {}).get(HELM_RELEASE) == self.release:
            return ["crds.keep=false"]
        say(f"{CRD} is in this cluster already: the story runs on that one")
        return ["crds.install=false"]

    def uninstall(self) -> None:
        """Run helm uninstall, if the release is there."""
        command = ("helm", "uninstall", self.release, "--namespace", self.namespace, "--wait", "--timeout", "180s")
        run(*command, "--ignore-not-found", timeout=200)

    def pods(self) -> list[Object]:
        """Its pods, without terminating ones."""
        return self._pods(self._selector)

    def gateways(self) -> list[Object]:
        """The pods of the release's gateways, without terminating ones."""
        return self._pods(self._gateways)

    @property
    def gateway_url(self) -> str:
        """The gateways' Service as pods of the cluster reach it."""
        return f"http://{self.release}-gateway.{self.namespace}.svc"

    def _pods(self, selector: str) -> list[Object]:
        label = urllib.parse.quote(selector)
        found = self._cluster.get(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={label}") or {}
        return [pod for pod in found.get("items", []) if "deletionTimestamp" not in pod["metadata"]]

    def leaders(self) -> list[str]:
        """The names of the pods that say that they lead: at most one."""
        return [name for name, found in self._all_metrics() if found.get(contract.OPERATOR_LEADER) == 1.0]

    def leader(self) -> str:
        """The name of the pod that leads; empty if none does."""
        return next(iter(self.leaders()), "")

    def holder(self) -> str:
        """The holder that the Lease names; empty without a Lease."""
        where = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.release}"
        return str(((self._cluster.get(where) or {}).get("spec") or {}).get("holderIdentity") or "")

    def metrics(self) -> dict[str, float]:
        """The metrics of the leader by `name{labels}`; empty if no pod leads."""
        answers = (found for _, found in self._all_metrics())
        return next((found for found in answers if found.get(contract.OPERATOR_LEADER) == 1.0), {})

    def _all_metrics(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The name and the metrics of each pod that answers."""
        for pod in self.pods():
            where = f"/api/v1/namespaces/{self.namespace}/pods/{name_of(pod)}:{_HEALTH_PORT}/proxy"
            yield name_of(pod), parse_metrics(self._cluster.text(f"{where}{contract.PATH_METRICS}") or "")

    def passes(self, result: str) -> float:
        """Number of reconciles that ended with `ok` or `error` since the process started."""
        return self.metrics().get(f'{contract.OPERATOR_RECONCILE}{{result="{result}"}}', 0.0)

    def wait_for_passes(self, count: int, timeout: float = 60) -> None:
        """Wait for `count` further successful reconciles. Raises TimedOut."""
        before = self.passes("ok")
        wait_for(f"{count} reconciles", lambda: self.passes("ok") >= before + count, timeout)

    def leads(self) -> bool:
        """True if one of its pods holds its Lease."""
        return bool(self.leader())

    def memory(self) -> Memory:
        """Memory of the leader's process, from the kernel's accounting. Raises CommandFailed."""
        text = run("kubectl", "-n", self.namespace, "exec", self.leader(), "--", PYTHON, "-c", _READ_MEMORY)
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        now, peak = (int(fields[field].split()[0]) * 1024 for field in ("VmRSS", "VmHWM"))
        return Memory(now, peak)

    def restarts(self) -> int:
        """Number of container restarts of its pods."""
        return sum(
            status["restartCount"] for pod in self.pods() for status in pod["status"].get("containerStatuses", [])
        )

    def logs(self) -> str:
        """What its pods have logged, one after another."""
        return run("kubectl", "-n", self.namespace, "logs", "-l", self._selector, "--tail=-1")

    def kill(self) -> None:
        """Kill its pods by SIGKILL: the Lease stays held, and nothing is flushed."""
        for pod in self.pods():
            command = ("kubectl", "-n", self.namespace, "delete", "pod", name_of(pod), "--force", "--grace-period=0")
            run(*command, "--ignore-not-found")
            say(f"operator {name_of(pod)} killed")

    def restart(self) -> None:
        """Delete its pods, wait until none of them is left, and then until another one is ready."""
        old = self.pods()
        names = [f"pod/{name_of(pod)}" for pod in old]
        run("kubectl", "-n", self.namespace, "delete", *names, "--timeout=100s")
        say(f"operator {self.release} is deleted")
        self.wait_ready(not_before=old)

    def stop(self) -> None:
        """Scale its Deployment to zero and wait until none of its pods is left."""
        self._scale(0)
        run("kubectl", "-n", self.namespace, "wait", "pods", "-l", self._selector, "--for=delete", "--timeout=60s")
        say(f"operator {self.release} is stopped")

    def start(self) -> None:
        """Scale its Deployment to the chart's default and wait until a pod is ready."""
        self._scale(REPLICAS)
        self.wait_ready(not_before=[])

    def _scale(self, replicas: int) -> None:
        run("kubectl", "-n", self.namespace, "scale", "deployment", "-l", self._selector, f"--replicas={replicas}")

    def wait_ready(self, not_before: list[Object]) -> None:
        """Wait until a pod other than those of `not_before` is ready."""
        old = {name_of(pod) for pod in not_before}
        wait_for(
            "a new operator is ready",
            lambda: any(is_ready(pod) and name_of(pod) not in old for pod in self.pods()),
            timeout=300,
        )

    @contextmanager
    def with_template(self, change: Object) -> Iterator[None]:
        """Its Deployment with a change of the pod template, and afterwards with that of before."""
        name = ("-n", self.namespace, f"deployment/{self.release}")
        patch = json.dumps({"spec": {"template": change}})
        try:
            run("kubectl", "patch", *name, "--type=strategic", "-p", patch)
            self._rolled(*name)
            yield
        finally:
            run("kubectl", "rollout", "undo", *name)
            self._rolled(*name)

    def _rolled(self, *name: str) -> None:
        run("kubectl", "rollout", "status", *name, "--timeout=200s", timeout=220)
        wait_for("an operator leads", self.leads, timeout=60)

    @contextmanager
    def without_status_writes(self) -> Iterator[None]:
        """Revoke the permission to write the status, and restore it afterwards.

        An operator that is killed in between is killed between its two writes.
        """
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
        items = found.get("items", [])
        return [each for each in items if each["metadata"].get("annotations", {}).get(HELM_RELEASE) == self.release]

    def _set_rules(self, role: Object, rules: list[Object]) -> None:
        """As Helm's own field manager: an upgrade that follows finds no other owner of the rules."""
        metadata = {name: role["metadata"].get(name) or {} for name in ("labels", "annotations")}
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name_of(role), **metadata},
            "rules": rules,
        }
        options = ("--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-")
        run("kubectl", "apply", *options, stdin=json.dumps(body))


def _set(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def _without(rule: Object) -> Object:
    return rule | {"resources": [resource for resource in rule.get("resources", []) if resource != STATUS]}
