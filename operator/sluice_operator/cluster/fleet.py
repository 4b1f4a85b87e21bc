"""The Deployment and the pods of one LLMDeployment as one pass observed them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sluice import contract
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
    canary_revision: str = ""  # fingerprint of the pod template of a canary's pod; "" for a stable one
    scrape_error: str = ""
    called: bool = True  # in this pass; False if no answer could be expected
    answered: bool = True  # True if the call of this pass returned a sample
    deletion_cost: int | None = None  # current value of the pod-deletion-cost annotation
    accelerators: Mapping[str, int] = field(default_factory=dict)  # per extended resource that it requests


@dataclass(frozen=True, slots=True)
class ObservedFleet:
    """Everything that one pass observed."""

    deployment: Object | None
    pods: tuple[ObservedPod, ...]  # of both Deployments
    canary: Object | None = None  # the Deployment of the canary revision
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
    """Return the Deployment's `spec.replicas`, with the canary's while it shares them; None without a Deployment.

    A count that does not match the Deployment's own note of its share is another writer's, and means all replicas.
    """
    if deployment is None:
        return None
    count = int(deployment.get("spec", {}).get("replicas", 1))
    note = str((deployment.get("metadata", {}).get("annotations") or {}).get(contract.ANNOTATION_SHARED, ""))
    both, _, own = note.partition("/")
    return int(both) if own == str(count) and both.isdecimal() else count


async def pods_of(
    deployments: Iterable[Object | None], namespace: str, name: str, cluster: ClusterClient
) -> list[Object]:
    """The pods that the Deployments' ReplicaSets control. Labels only narrow the lists: any pod may carry them."""
    labels, found = names.selector(name), list[Object]()
    for deployment in deployments:
        if deployment is not None:
            for each in await cluster.controlled_by("ReplicaSet", namespace, deployment["metadata"]["uid"], labels):
                found += await cluster.controlled_by("Pod", namespace, each["metadata"]["uid"], labels)
    return found
