"""Saturates the API server from a pod (inpod/flood.py), with a right to list large objects of the suite's namespace."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.framework import jobs, manifests
from e2e.framework.cluster import Cluster, Object, run

NAME = "flood"
CONNECTIONS = 24
_OBJECTS, _CHARACTERS = 60, 50_000  # of the lists: 3 MB each


@contextmanager
def of_lists(cluster: Cluster, engine_image: str) -> Iterator[jobs.Load]:
    """The flood, which its user ends by `finish`."""
    cluster.apply(*_access())
    _create([_object(number) for number in range(_OBJECTS)], cluster)
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps?labelSelector={NAME}%3Dyes"
    program = [manifests.PYTHON, f"{manifests.PROGRAMS}/flood.py", path, str(CONNECTIONS)]
    job = manifests.client_job(NAME, engine_image, program)
    job["spec"]["template"]["spec"] |= {"automountServiceAccountToken": True, "serviceAccountName": NAME}
    try:
        yield jobs.start(cluster, job)
    finally:
        cluster.kubectl("delete", "job", NAME, "--grace-period=1", "--cascade=foreground")
        cluster.kubectl("delete", "configmaps", "-l", f"{NAME}=yes", "--wait=false")
        cluster.kubectl("delete", f"rolebinding/{NAME}", f"role/{NAME}", f"serviceaccount/{NAME}")


def _create(objects: list[Object], cluster: Cluster) -> None:
    """By create, because apply would keep a copy of each in its annotation."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("delete", "configmaps", "-l", f"{NAME}=yes")
    run("kubectl", "-n", cluster.namespace, "create", "-f", "-", stdin=manifest)


def _object(number: int) -> Object:
    metadata = {"name": f"{NAME}-{number}", "labels": {NAME: "yes"}}
    data = {"text": "x" * _CHARACTERS}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _access() -> list[Object]:
    rbac, metadata = "rbac.authorization.k8s.io", {"name": NAME}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME}],
        },
    ]
