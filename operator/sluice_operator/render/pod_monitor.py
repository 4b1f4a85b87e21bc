"""Builds the PodMonitor of the engine pods: how a Prometheus of the Prometheus Operator scrapes their admin ports.

The series get the labels `namespace`, `pod` and `llmdeployment`, by which the chart's dashboards and alerts group them.
The NetworkPolicy admits the Prometheus that `networkPolicy.metricsFrom` names. Where reads need a token (`metrics.auth`),
Prometheus sends the one of a Secret in the namespace of the PodMonitor, which is what its API requires.
"""

from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.settings import PodMonitorSettings

_SAMPLE_LIMIT: Final = 5000  # ten times what an engine exports: a fault must not fill Prometheus
_INSTANCE: Final = "__meta_kubernetes_pod_label_app_kubernetes_io_instance"


def build_pod_monitor(resource: LLMDeployment, settings: PodMonitorSettings, read_secret: str = "") -> Object:
    """Return the PodMonitor. The user's labels come first, so that they cannot replace those of every child.

    read_secret: name of the Secret of the token of reads; empty: Prometheus sends none.
    """
    credentials = {"name": read_secret, "key": contract.READ_TOKEN_KEY}
    metadata = names.metadata(resource, names.pod_monitor(resource.name))
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata | {"labels": dict(settings.labels) | metadata["labels"]},
        "spec": {
            "jobLabel": contract.LABEL_NAME,
            "selector": {"matchLabels": names.selector(resource.name)},
            "sampleLimit": _SAMPLE_LIMIT,
            "podMetricsEndpoints": [
                {
                    "port": contract.ADMIN_PORT_NAME,
                    "path": contract.PATH_METRICS,
                    "interval": f"{settings.interval_seconds}s",
                    "scrapeTimeout": f"{min(settings.interval_seconds, 10)}s",
                    "relabelings": [{"sourceLabels": [_INSTANCE], "targetLabel": contract.SERIES_LABEL}],
                    **({"authorization": {"credentials": credentials}} if read_secret else {}),
                }
            ],
        },
    }
