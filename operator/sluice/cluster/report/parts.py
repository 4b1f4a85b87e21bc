"""The files of the bundle, read one after the other so that only one log is in memory.

No Secret is read but, where the operator's metrics need a token, that of the token, which is in no file.
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice import __version__, contract
from sluice.cluster.checks.judge import judge
from sluice.cluster.checks.observation import GATEWAY_APP, OPERATOR_APP, observe
from sluice.cluster.checks.result import as_json
from sluice.cluster.reader import Object, Reader, deployments_path
from sluice.cluster.report.redact import Redactor
from sluice.sentences import escaped
from sluice_kube.api import collection
from sluice_kube.errors import ClusterError

APPS: Final = (contract.ENGINE_APP, OPERATOR_APP, GATEWAY_APP)
_KINDS: Final = (
    ("v1", "pods"),
    ("apps/v1", "deployments"),
    ("apps/v1", "replicasets"),
    ("v1", "services"),
    ("networking.k8s.io/v1", "networkpolicies"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the bundle."""

    path: str
    text: str


class Collector:
    """`faults`: what could not be read, one sentence each, once; the other files are complete. `has_read`: something could."""

    def __init__(self, reader: Reader, namespace: str, tail: int) -> None:
        """`namespace` is that of the LLMDeployments; empty: all. `tail`: the last lines of each log."""
        self._reader = reader
        self._namespace = namespace
        self._tail = tail
        self.redactor = Redactor()
        self.faults: list[str] = []
        self.has_read = False

    async def parts(self) -> AsyncIterator[Part]:
        """Yield all files. Objects come before logs, so that values redacted in them are removed from the logs."""
        resources = await self._list(deployments_path(self._namespace)) or []
        yield self._json("llmdeployments.json", resources)
        pods: list[Object] = []
        for group, plural in _KINDS:
            found = await self._of_sluice(group, plural)
            pods += found if plural == "pods" else []
            yield self._json(f"{plural}.json", found)
        yield self._json("events.json", await self._events([*resources, *pods]))
        yield self._json("checks.json", await self._checks())
        yield self._json("versions.json", await self._versions(pods))
        for pod in pods:
            async for part in self._logs(pod):
                yield part
        summary = {"redactedValues": self.redactor.count, "namespace": self._namespace or "all", "faults": self.faults}
        yield self._json("summary.json", summary)

    async def _of_sluice(self, group: str, plural: str) -> list[Object]:
        """Objects of the engines in the namespace, and of operator and gateway in any that may be read."""
        found: list[Object] = []
        for app in APPS:
            labels = f"{contract.LABEL_NAME}={app}"
            where = self._namespace if app == contract.ENGINE_APP else ""
            listed = await self._list(collection(group, plural, where), labels)
            if listed is None and where != self._namespace:
                listed = await self._list(collection(group, plural, self._namespace), labels)
            found += listed or ()
        return found

    async def _events(self, owners: Sequence[Object]) -> list[Object]:
        """The events of resources and pods, and of the objects of the same name."""
        names = {(each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in owners}
        found = []
        for namespace in sorted({namespace for namespace, _ in names}):
            for event in await self._list(collection("v1", "events", namespace)) or ():
                if (namespace, (event.get("involvedObject") or {}).get("name")) in names:
                    found.append(event)
        return found

    async def _checks(self) -> dict[str, Any]:
        try:
            return as_json(judge(await observe(self._reader)))
        except ClusterError as error:
            self._lacks(error)
            return {}

    async def _versions(self, pods: Sequence[Object]) -> dict[str, Any]:
        images = {
            each.get("image", ""): each.get("imageID", "")
            for pod in pods
            for each in (pod.get("status") or {}).get("containerStatuses") or ()
        }
        try:
            server = await self._reader.get("/version")
        except ClusterError as error:
            self._lacks(error)
            server = {}
        listed = [{"image": image, "imageID": digest} for image, digest in sorted(images.items())]
        return {"sluice": __version__, "kubernetes": server.get("gitVersion"), "images": listed}

    async def _logs(self, pod: Object) -> AsyncIterator[Part]:
        """The last lines of each container, and of its run before if it was restarted."""
        metadata = pod["metadata"]
        path = f"{collection('v1', 'pods', metadata['namespace'])}/{metadata['name']}/log"
        for state in (pod.get("status") or {}).get("containerStatuses") or ():
            query = {"container": state["name"], "tailLines": str(self._tail), "timestamps": "true"}
            runs = {"": query} | ({"-previous": query | {"previous": "true"}} if state.get("restartCount") else {})
            for suffix, wanted in runs.items():
                try:
                    text = await self._reader.text(path, wanted)
                except ClusterError as error:
                    self._lacks(error)
                    continue
                name = f"logs/{metadata['namespace']}/{metadata['name']}/{state['name']}{suffix}.log"
                yield Part(name, self.redactor.text(text))

    async def _list(self, path: str, labels: str = "") -> list[Object] | None:
        """The objects; None if they cannot be read."""
        try:
            found = await self._reader.list(path, labels)
        except ClusterError as error:
            self._lacks(error)
            return None
        self.has_read = True
        return found

    def _lacks(self, error: ClusterError) -> None:
        if str(error) not in self.faults:
            self.faults.append(str(error))

    def _json(self, name: str, value: Any) -> Part:
        text = json.dumps(self.redactor.object(value), indent=2, ensure_ascii=False)
        return Part(name, escaped(text) + "\n")
