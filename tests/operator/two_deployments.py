"""An in-memory cluster whose Deployments of both revisions get pods, and engines that each count their own requests."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sluice import contract
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.cluster.client import Endpoint, Object
from sluice_operator.engines.exposition import parse
from tests.operator.fake_cluster import KEY, Engines, FakeCluster, exposition, pod

BAD_IMAGE = "registry.example/engine:missing"
PULL_FAILS: dict[str, Any] = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "engine",
            "image": BAD_IMAGE,
            "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
        }
    ],
}


@dataclass
class TwoDeployments(FakeCluster):
    """Its controllers act when a Deployment is read: pods of another template are replaced at once."""

    numbers: Counter[str] = field(default_factory=Counter)
    stays: bool = False  # pods that a Deployment no longer wants stay
    stalled: tuple[str, str] = ("", "")  # name of a Deployment and image of which its first pod does not start in time

    def _control(self) -> None:
        self.pods = [each for each in self.pods if self._owner(each) in self._templates()]
        for deployment in self.store.list_all("Deployment"):
            self._scale(deployment)

    def _templates(self) -> set[str]:
        return {_set_of(each) for each in self.store.list_all("Deployment")}

    @staticmethod
    def _owner(item: Object) -> str:
        return str(item["metadata"]["ownerReferences"][0]["uid"])

    def _scale(self, deployment: Object) -> None:
        name, spec, uid = deployment["metadata"]["name"], deployment["spec"], _set_of(deployment)
        image = spec["template"]["spec"]["containers"][0]["image"]
        is_late = (name, image) == self.stalled
        bad = image == BAD_IMAGE
        own = [each for each in self.pods if self._owner(each) == uid]
        for each in [] if self.stays else own[int(spec.get("replicas", 1)) :]:
            self.pods.remove(each)
        for number in range(len(own), int(spec.get("replicas", 1))):
            self.numbers[name] += 1
            fails = bad or (is_late and number == 0)
            made = pod(f"{name}-{self.numbers[name]}", ready=not fails, **(PULL_FAILS if fails else {}))
            meta = spec["template"]["metadata"]
            made["metadata"]["labels"] = {**meta["labels"], "pod-template-hash": uid[-8:]}
            made["metadata"]["annotations"] = dict(meta.get("annotations", {}))
            made["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": uid, "controller": True}]
            self.pods.append(made)
        count = int(spec.get("replicas", 1))
        ready = 0 if bad else count - is_late
        status: Object = {"observedGeneration": deployment["metadata"].get("generation", 1), "replicas": count}
        status |= {"updatedReplicas": count, "readyReplicas": ready}
        if is_late:
            late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
            status["conditions"] = [late]
        self.store.set_status("Deployment", KEY.namespace, name, status)

    def _replica_sets(self) -> list[Object]:
        return [
            {
                "metadata": {
                    "uid": _set_of(each),
                    "ownerReferences": [{"controller": True, "uid": each["metadata"]["uid"]}],
                }
            }
            for each in self.store.list_all("Deployment")
        ]

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        self.store.delete(kind, namespace, name)
        await super().delete(kind, namespace, name)

    def of(self, name: str, kind: str = "Deployment") -> Object | None:
        """The object of this name."""
        return self.store.get(kind, KEY.namespace, name)

    def weight(self) -> int | None:
        """The canary's share of the requests in percent, as gateways see it; None without a canary."""
        service = self.of(f"{KEY.name}{contract.CANARY_SUFFIX}", "Service")
        return None if service is None else int(service["metadata"]["labels"][contract.LABEL_WEIGHT])

    def image(self, name: str = KEY.name) -> str:
        """The engine image of a Deployment's template."""
        return str((self.of(name) or {})["spec"]["template"]["spec"]["containers"][0]["image"])


def _set_of(deployment: Object) -> str:
    """The uid of the ReplicaSet of its template."""
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return f"{deployment['metadata']['uid']}-{image}"


@dataclass
class CountingEngines(Engines):
    """The engines of a canary answer ten requests between two scrapes, of which `failing` end with an error."""

    failing: int = 0
    scrapes: Counter[str] = field(default_factory=Counter)

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        self.scraped.append(endpoint.pod)
        series = {}
        if contract.CANARY_SUFFIX in endpoint.pod:
            self.scrapes[endpoint.pod] += 1
            count = self.scrapes[endpoint.pod]
            series = {
                'requests_total{outcome="stop"}': (10.0 - self.failing) * count,
                'requests_total{outcome="error"}': float(self.failing * count),
                'slo_requests_total{result="met"}': (10.0 - self.failing) * count,
            }
        return parse(exposition(**series))
