"""The claim that holds the model: from the cluster's provisioner where it has one, else on a volume of the suite's own."""

import json
from pathlib import PurePosixPath

from e2e.cluster import Cluster, Object, name_of, run, say, wait_for
from e2e.manifests import PYTHON, USER, job

CLAIM = "models"
_SIZE = "1Gi"
# This root may change owners and nothing else: what is the engine user's becomes root's before it can be removed.
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
    """Make the claim `models`. Returns (kind, name) of what lies outside the suite's namespace."""
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
    """Where nothing provides volumes: one for the claim `models` of this namespace. Returns what it made, as `make`."""
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
    """hostPath folders belong to root and ignore fsGroup: give the folder to the engine's user, once, as root, in a
    namespace without the restricted policy."""
    run("kubectl", "create", "namespace", name)
    give = f"import os; os.chown('/folder', {USER}, {USER})"
    _as_root(cluster, node, name, "give", image, path, give)
    say("the volume's folder belongs to the engine's user")
    return [("namespace", name)]


def erase(cluster: Cluster, outside: list[tuple[str, str]], engine_image: str) -> None:
    """Take the volume's folder off its node, where `back` made one and its namespace is still there. Call once nobody
    writes to it. Raises CommandFailed, TimedOut."""
    for name in (name for kind, name in outside if kind == "persistentvolume"):
        spec = (cluster.get(f"/api/v1/persistentvolumes/{name}") or {}).get("spec")
        if spec is None:
            continue
        path = PurePosixPath(spec["hostPath"]["path"])
        node = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]
        _as_root(cluster, node, name, "erase", engine_image, str(path.parent), _ERASE.format(folder=path.name))
        say(f"{path} is gone from node {node}")


def _as_root(cluster: Cluster, node: str, namespace: str, name: str, image: str, path: str, program: str) -> None:
    """Run a program as root on the node, where /folder is the node's `path`, to its end."""
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
