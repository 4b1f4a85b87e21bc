"""An installed release as an API server returns it, into which a test puts its fault."""

import base64
from typing import Any

import yaml

from sluice import __version__, contract
from sluice.commands.crds import crd_text
from sluice_kube.api import collection
from tests.cluster.api_server import ApiServer

NAMESPACE = "sluice-system"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmdeployments.sluice.dev"
DEPLOYMENTS = collection("apps/v1", "deployments")
SERVICES = collection("v1", "services")
ENDPOINTS = collection("discovery.k8s.io/v1", "endpointslices")
NODES = collection("v1", "nodes")
PODS = collection("v1", "pods")
READ_SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/sluice-read"
METRICS = f"/api/v1/namespaces/{NAMESPACE}/services/sluice-metrics:metrics/proxy/metrics"


def named(name: str, app: str, **labels: str) -> dict[str, Any]:
    given = {contract.LABEL_NAME: app, "app.kubernetes.io/version": __version__} | labels
    return {"name": name, "namespace": NAMESPACE, "labels": given}


def deployment(name: str, app: str, image: str, **variables: str) -> dict[str, Any]:
    env = [{"name": key, "value": value} for key, value in variables.items()]
    return {
        "metadata": named(name, app),
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": image, "env": env}]}}},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    }


def empty_cluster(server: ApiServer) -> None:
    """A cluster with one node and without Sluice."""
    server.objects["/version"] = {"gitVersion": "v1.34.1"}
    server.serve(NODES, {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "4", "cpu": "8"}}})
    for path in (DEPLOYMENTS, SERVICES, ENDPOINTS, PODS):
        server.serve(path)


def asks_for(server: ApiServer, token: str) -> None:
    """The operator's metrics need this token, which the release's Secret has."""
    operator = server.objects[DEPLOYMENTS]["items"][0]
    given = {"SLUICE_METRICS_AUTH": "token", "SLUICE_READ_SECRET": "sluice-read"}
    operator["spec"]["template"]["spec"]["containers"][0]["env"] += [
        {"name": name, "value": value} for name, value in given.items()
    ]
    server.tokens[METRICS] = token
    server.objects[READ_SECRET] = {"data": {"token": base64.b64encode(token.encode()).decode()}}


def installed(server: ApiServer) -> None:
    """A release whose operator and gateway serve."""
    empty_cluster(server)
    operator = deployment("sluice", "sluice-operator", f"o:{__version__}", SLUICE_ENGINE_IMAGE=f"e:{__version__}")
    server.objects[CRD] = yaml.safe_load(crd_text())
    server.serve(DEPLOYMENTS, operator, deployment("sluice-gateway", "sluice-gateway", f"o:{__version__}"))
    services = (
        {"metadata": named("sluice-gateway", "sluice-gateway")},
        {"metadata": named("sluice-metrics", "sluice-operator")},
    )
    server.serve(SERVICES, *services)
    labels = {"kubernetes.io/service-name": "sluice-gateway"}
    endpoints = [{"conditions": {"ready": True}}, {"conditions": {"ready": False}}]
    server.serve(ENDPOINTS, {"metadata": named("gw-1", "sluice-gateway", **labels), "endpoints": endpoints})
    server.objects[METRICS] = f"{contract.OPERATOR_LEADER} 1.0\n"
