"""The Deployment and the pods of one LLMDeployment as one pass observed them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_operator.autoscaler.values import Observed, PodView
from sluice_operator.cluster.client import ClusterClient, Endpoint, Object
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.render import names


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """One pod: its view for decide(), and the fields that only the status and the writes need."""

    view: PodView
    endpoint: Endpoint | None = None
    problem: Problem | None = None
    progress: str = ""  # of the download of its model, in words
    loaded: str = ""  # how much of the model is on the device, in words
    model: str = ""  # the engine's first argument: a URI, or a path inside the container
    template_hash: str = ""
    scrape_error: str = ""
    called: bool = True  # in this pass; False if no answer could be expected
    answered: bool = True  # True if the call of this pass returned a sample
    deletion_cost: int | None = None  # current value of the pod-deletion-cost annotation
    accelerators: Mapping[str, int] = field(default_factory=dict)  # per extended resource that it requests


@dataclass(frozen=True, slots=True)
class ObservedFleet:
    """Everything that one pass observed."""

    deployment: Object | None
    pods: tuple[ObservedPod, ...]
    held: int | None = None  # requests that the gateway holds until a replica is ready; None: no such gateway
    wall: float | None = None  # seconds since 1970

    @property
    def observed(self) -> Observed:
        """The input of decide()."""
        views = tuple(report.view for report in self.pods)
        return Observed(pods=views, replicas=replicas_of(self.deployment), held=self.held, wall=self.wall)

    @property
    def ready(self) -> int:
        """Number of ready pods."""
        return sum(report.view.phase == "ready" for report in self.pods)

    @property
    def scrape_failures(self) -> int:
        """Number of ready engines that were called and returned no sample."""
        return sum(report.called and bool(report.scrape_error) for report in self.pods)


def replicas_of(deployment: Object | None) -> int | None:
    """Return the Deployment's `spec.replicas`; None without a Deployment."""
    if deployment is None:
        return None
    return int(deployment.get("spec", {}).get("replicas", 1))


async def pods_of(deployment: Object | None, namespace: str, name: str, cluster: ClusterClient) -> list[Object]:
    """The pods that the Deployment's ReplicaSets control. Labels only narrow the lists: any pod may carry them."""
    if deployment is None:
        return []
    labels = names.selector(name)
    sets = await cluster.controlled_by("ReplicaSet", namespace, deployment["metadata"]["uid"], labels)
    found = [await cluster.controlled_by("Pod", namespace, each["metadata"]["uid"], labels) for each in sets]
    return [pod for pods in found for pod in pods]
