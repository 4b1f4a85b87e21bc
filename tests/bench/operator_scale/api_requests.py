"""Counts the requests of one ServiceAccount at the API server: a FlowSchema of its own gives them a label in its metrics."""

import re
from typing import Any

Object = dict[str, Any]


def flow_schema(name: str, namespace: str, account: str) -> Object:
    """The FlowSchema of all requests of an account. Its priority and queue are those of any ServiceAccount."""
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": account, "namespace": namespace}}],
        "resourceRules": [everything],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},
            "matchingPrecedence": 100,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule],
        },
    }


def dispatched(metrics: str, name: str) -> float:
    """The requests that the API server has admitted by a FlowSchema, by its metrics."""
    lines = re.findall(
        rf'^apiserver_flowcontrol_dispatched_requests_total\{{[^}}]*flow_schema="{name}"[^}}]*\}} (\S+)$',
        metrics,
        re.MULTILINE,
    )
    return sum(map(float, lines))
