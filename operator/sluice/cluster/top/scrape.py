"""One pass over the deployments and the metrics of their ready pods, which are read through the API server's pod proxy."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sluice import contract
from sluice.cluster.reader import Object, Reader, deployments_path
from sluice.cluster.summary import Summary, summarise
from sluice_kube.api import collection
from sluice_kube.errors import ClusterError
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.engines.exposition import BadExposition, parse

Name = tuple[str, str]  # namespace and name of an LLMDeployment


@dataclass(frozen=True, slots=True)
class Pass:
    """`samples`: by deployment and uid of the pod. `faults`: why the metrics of a pod could not be read, one per pod."""

    at: float  # seconds of the clock
    summaries: tuple[Summary, ...]
    samples: dict[Name, dict[str, EngineSample]]
    faults: tuple[str, ...]


async def scrape(reader: Reader, namespace: str, clock: Callable[[], float]) -> Pass:
    """Read one pass. An empty namespace means all. Raises ClusterError if deployments or pods cannot be listed."""
    resources, pods = await asyncio.gather(
        reader.list(deployments_path(namespace)),
        reader.list(collection("v1", "pods", namespace), f"{contract.LABEL_NAME}={contract.ENGINE_APP}"),
    )
    ready = [pod for pod in pods if _is_ready(pod)]
    answers = await asyncio.gather(*(_sample(reader, pod) for pod in ready))
    samples: dict[Name, dict[str, EngineSample]] = {}
    faults = []
    for pod, answer in zip(ready, answers, strict=True):
        metadata = pod["metadata"]
        if isinstance(answer, str):
            faults.append(answer)
            continue
        owner = (metadata["namespace"], metadata["labels"].get(contract.LABEL_INSTANCE, ""))
        samples.setdefault(owner, {})[metadata["uid"]] = answer
    summaries = sorted((summarise(each) for each in resources), key=lambda each: (each.namespace, each.name))
    return Pass(clock(), tuple(summaries), samples, tuple(faults))


async def _sample(reader: Reader, pod: Object) -> EngineSample | str:
    metadata = pod["metadata"]
    where = collection("v1", "pods", metadata["namespace"])
    try:
        return parse(
            await reader.text(f"{where}/{metadata['name']}:{contract.ADMIN_PORT}/proxy{contract.PATH_METRICS}")
        )
    except (ClusterError, BadExposition) as error:
        return str(error)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
