"""The claim that holds the model: from the cluster's provisioner where it has one, else on a volume of the suite's own."""

import json

from e2e.cluster import Cluster, Object, name_of, run, say, wait_for
from e2e.manifests import PYTHON, USER, job

CLAIM = "models"
_SIZE = "1Gi"


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
    give = job(
        "give",
        image,
        [PYTHON, "-c", f"import os; os.chown('/folder', {USER}, {USER})"],
        volumes=[{"name": "folder", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}],
        mounts=[{"name": "folder", "mountPath": "/folder"}],
        root=True,
    )
    give["spec"]["template"]["spec"]["nodeName"] = node
    run("kubectl", "-n", name, "apply", "-f", "-", stdin=json.dumps(give))

    def done() -> bool:
        found = cluster.get(f"/apis/batch/v1/namespaces/{name}/jobs/give") or {}
        return bool(found.get("status", {}).get("succeeded"))

    wait_for("the volume's folder belongs to the engine's user", done, timeout=120)
    return [("namespace", name)]
