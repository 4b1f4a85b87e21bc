"""What Helm renders of the chart, as stored in tests/data/chart: the tests of roles and policies run without Helm.

`test_chart_objects.py` compares the stored objects with Helm's where Helm is installed.
"""

from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]

RELEASE: Final = "blue"
NAMESPACE: Final = "sluice-system"
DATA: Final = Path(__file__).parents[2] / "data/chart"
_MONITORS: Final = tuple(
    option
    for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")
    for option in ("--api-versions", f"monitoring.coreos.com/v1/{kind}")
)
# Name of the stored file → options of `helm template`.
VARIANTS: Final = {
    "default": (),
    "one_namespace": ("--set", "watchNamespace=apps"),
    "two_namespaces": ("--set", "watchNamespaces={apps,models}"),
    "no_gateway": ("--set", "gateway.enabled=false"),
    "no_policies": ("--set", "networkPolicy.enabled=false"),
    "named_egress": (
        *(
            "--set-json",
            'networkPolicy.egress.dnsTo=[{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}]',
        ),
        *("--set-json", 'networkPolicy.egress.sourcesTo=[{"ipBlock": {"cidr": "198.51.100.0/24"}}]'),
        *(
            "--set-json",
            'networkPolicy.egress.telemetryTo=[{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "otel"}}}]',
        ),
        *("--set-json", 'networkPolicy.egress.apiServerTo=[{"ipBlock": {"cidr": "192.0.2.0/28"}}]'),
        *("--set-json", "networkPolicy.egress.apiServerPorts=[6443]"),
        *("--set", "networkPolicy.namespaceClients=Never,tracing.endpoint=http://otel.monitoring:4318"),
    ),
    "open_egress": ("--set", "networkPolicy.egress.enabled=false,networkPolicy.namespaceClients=Always"),
    "monitored": (
        *_MONITORS,
        *("--set", "metrics.monitors.labels.release=prometheus,metrics.rules.labels.release=prometheus"),
        *("--set", "metrics.dashboards.enabled=true"),
    ),
    "read_tokens": (*_MONITORS, "--set", "metrics.auth=token,metrics.rules.enabled=false,gateway.kvEvents=true"),
}


def stored(variant: str = "default", *kinds: str) -> list[Object]:
    """The objects of these kinds; of all kinds without one."""
    objects = list(yaml.safe_load_all((DATA / f"{variant}.yaml").read_text()))
    return [each for each in objects if not kinds or each["kind"] in kinds]


def environment(variant: str = "default") -> dict[str, str]:
    """The plain variables of the operator's container."""
    (deployment,) = (each for each in stored(variant, "Deployment") if each["metadata"]["name"] == "blue-sluice")
    variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    return {each["name"]: each["value"] for each in variables if "value" in each}
