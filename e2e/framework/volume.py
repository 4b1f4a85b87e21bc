"""The claim for the model: on the cluster's default StorageClass if there is one, else on a hostPath volume."""

import json
from pathlib import PurePosixPath

from e2e.framework.cluster import Cluster, Object, name_of, run, say, wait_for
from e2e.framework.manifests import PYTHON, USER, job

CLAIM = "models"
_SIZE = "1Gi"
# This root user may change owners and nothing else, so the engine user's files become root's before they are removed.
_ERASE = """
import os, shutil
top = "/folder/{folder}"
os.chown(top, 0, 0)
for base, folders, _ in os.walk(top):
    for each in folders:
        os.chown(os.path.join(base, each), 0, 0)
shutil.rmtree(top)
"""


def make(cluster: Cluster, run_name: str, engine_image: str) -> list[tuple[str, str]]:
    """Create the claim `models`. Returns (kind, name) of the objects outside the suite's namespace."""
    outside = back(cluster, run_name, engine_image)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _SIZE}}},
        }
    )
    return outside


def back(cluster: Cluster, run_name: str, engine_image: str) -> list[tuple[str, str]]:
    """Create a volume for the claim `models` if the cluster provisions none.

    Returns the created objects as `make` does.
    """
    if _has_default_class(cluster):
        return []
    node = _node(cluster)
    volume = f"sluice-volume-{run_name}"
    path = f"/var/tmp/{volume}"
    say(f"no default StorageClass: a volume of our own at {path} on node {node}")
    made = _make_writable(cluster, node, path, volume, engine_image)
    run("kubectl", "apply", "-f", "-", stdin=json.dumps(_volume(volume, path, node, cluster.namespace)))
    return [*made, ("persistentvolume", volume)]


def _has_default_class(cluster: Cluster) -> bool:
    classes = (cluster.get("/apis/storage.k8s.io/v1/storageclasses") or {}).get("items", [])
    mark = "storageclass.kubernetes.io/is-default-class"
    return any(c["metadata"].get("annotations", {}).get(mark) == "true" for c in classes)


def _node(cluster: Cluster) -> str:
    nodes = (cluster.get("/api/v1/nodes") or {}).get("items", [])
    fit = [n for n in nodes if not n["spec"].get("taints") and not n["spec"].get("unschedulable")]
    return name_of((fit or nodes)[0])


def _volume(name: str, path: str, node: str, namespace: str) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": _SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": CLAIM},
            "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def _make_writable(cluster: Cluster, node: str, path: str, name: str, image: str) -> list[tuple[str, str]]:
    """Give the volume's folder to the engine's user, because hostPath folders belong to root and ignore fsGroup.

    This needs root and so a namespace without the restricted policy.
    """
    run("kubectl", "create", "namespace", name)
    give = f"import os; os.chown('/folder', {USER}, {USER})"
    _as_root(cluster, node, name, "give", image, path, give)
    say("the volume's folder belongs to the engine's user")
    return [("namespace", name)]


def erase(cluster: Cluster, outside: list[tuple[str, str]], engine_image: str) -> None:
    """Delete the volume's folder on its node, if `back` created one and its namespace still exists.

    Call it when no pod writes to the folder any more. Raises CommandFailed and TimedOut.
    """
    for name in (name for kind, name in outside if kind == "persistentvolume"):
        spec = (cluster.get(f"/api/v1/persistentvolumes/{name}") or {}).get("spec")
        if spec is None:
            continue
        path = PurePosixPath(spec["hostPath"]["path"])
        node = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]
        _as_root(cluster, node, name, "erase", engine_image, str(path.parent), _ERASE.format(folder=path.name))
        say(f"{path} is gone from node {node}")


def _as_root(cluster: Cluster, node: str, namespace: str, name: str, image: str, path: str, program: str) -> None:
    """Run a program to its end as root on the node, where /folder is the node's `path`."""
    manifest = job(
        name,
        image,
        [PYTHON, "-c", program],
        volumes=[{"name": "folder", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}],
        mounts=[{"name": "folder", "mountPath": "/folder"}],
        root=True,
    )
    manifest["spec"]["template"]["spec"]["nodeName"] = node
    run("kubectl", "-n", namespace, "apply", "-f", "-", stdin=json.dumps(manifest))

    def done() -> bool:
        found = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}") or {}
        return bool(found.get("status", {}).get("succeeded"))

    wait_for(f"job {name}", done, timeout=300)
