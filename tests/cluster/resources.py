"""Objects as an API server returns them."""

from typing import Any

from sluice import contract

LLMD = f"/apis/{contract.API_VERSION}"
ALL = f"{LLMD}/{contract.PLURAL}"


def in_namespace(namespace: str) -> str:
    """The path of the LLMDeployments of a namespace."""
    return f"{LLMD}/namespaces/{namespace}/{contract.PLURAL}"


def condition(kind: str, state: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": state, "reason": reason, "message": message}


def serving(name: str, namespace: str = "apps", **status: Any) -> dict[str, Any]:
    """A resource whose three replicas serve."""
    conditions = [
        condition("Ready", "True", "Serving", "3 of 3 pods are ready."),
        condition("Progressing", "False", "Settled", "All 3 replicas serve this spec; no change is in progress."),
        condition("Paused", "False", "Active"),
    ]
    measured = {
        "readyReplicas": 3,
        "desiredReplicas": 3,
        "slo": {"attainmentPercent": "99.4", "ttftMilliseconds": 810, "itlMilliseconds": 38},
        "kvOccupancyPercent": 61,
        "admission": {"concurrency": 48, "reason": "InterTokenLatency"},
        "conditions": conditions,
    }
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B@main"}},
        "status": measured | status,
    }


def failing(name: str, reason: str, message: str, namespace: str = "apps") -> dict[str, Any]:
    """A resource of which no pod starts."""
    status = {
        "readyReplicas": 0,
        "desiredReplicas": 1,
        "conditions": [condition("Ready", "False", reason, message), condition("Paused", "False", "Active")],
    }
    return serving(name, namespace) | {"status": status}
