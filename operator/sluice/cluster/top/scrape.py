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
_NONE: Name = ("", "")


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
    names = sorted({name for pod in ready if (name := _secret_of(pod)) is not None})
    tokens = dict(zip(names, await asyncio.gather(*(_token(reader, name) for name in names)), strict=True))
    answers = await asyncio.gather(*(_sample(reader, pod, tokens.get(_secret_of(pod) or _NONE, "")) for pod in ready))
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


def _secret_of(pod: Object) -> Name | None:
    """Namespace and name of the Secret whose token the reads of the pod need; None if they need none."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("name") == contract.READ_VOLUME:
            return pod["metadata"]["namespace"], str((volume.get("secret") or {}).get("secretName", ""))
    return None


async def _token(reader: Reader, name: Name) -> str | ClusterError:
    """The token of a Secret. One that cannot be read is a fault of its pods alone."""
    try:
        return await reader.secret(*name, contract.READ_TOKEN_KEY)
    except ClusterError as error:
        return error


async def _sample(reader: Reader, pod: Object, token: str | ClusterError) -> EngineSample | str:
    metadata = pod["metadata"]
    where = collection("v1", "pods", metadata["namespace"])
    if isinstance(token, ClusterError):
        return f"{metadata['name']}: its metrics need a token, and you may not read it: {token}"
    path = f"{where}/{metadata['name']}:{contract.ADMIN_PORT}/proxy{contract.PATH_METRICS}"
    try:
        return parse(await reader.text(path, read_token=token))
    except (ClusterError, BadExposition) as error:
        return str(error)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
