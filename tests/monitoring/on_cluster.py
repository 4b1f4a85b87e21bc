"""A real Prometheus beside a real cluster: it reads all pods of a release through `kubectl proxy`, labelled as the monitors do."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from sluice import contract

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "charts/sluice/files/rules.yaml"
INTERVAL: Final = "15s"  # the chart's default
_POD: Final = "__meta_kubernetes_pod"
_APP: Final = f"{_POD}_label_app_kubernetes_io_name"
_INSTANCE: Final = f"{_POD}_label_app_kubernetes_io_instance"
_PORT: Final = f"{_POD}_container_port_name"


def configuration(folder: Path, proxy: str, engines: str, release: str) -> str:
    """The configuration of a Prometheus, whose kubeconfig is written to the folder.

    proxy: host and port of `kubectl proxy`. engines, release: the namespaces of the engine pods and of the Helm release.
    """
    kubeconfig = folder / "kubeconfig"
    shown = subprocess.run(
        ["kubectl", "config", "view", "--raw", "--flatten", "--minify"], check=True, capture_output=True, text=True
    )
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(shown.stdout)
    jobs = (
        _job(contract.ENGINE_APP, engines, contract.ADMIN_PORT_NAME),
        _job("sluice-gateway", release, contract.ADMIN_PORT_NAME),
        _job("sluice-operator", release, "metrics"),
    )
    for job in jobs:
        job["kubernetes_sd_configs"][0]["kubeconfig_file"] = str(kubeconfig)
        job["relabel_configs"].append({"target_label": "__address__", "replacement": proxy})
    made = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    return json.dumps(made)  # JSON is YAML


def _job(app: str, namespace: str, port: str) -> dict[str, Any]:
    """As the Prometheus Operator makes it of the monitor of these pods."""
    where = [f"{_POD}_name", _PORT, "__meta_kubernetes_namespace"]
    job: dict[str, Any] = {
        "job_name": app,
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
        "relabel_configs": [
            {"source_labels": [_APP, _PORT], "regex": f"{app};{port}", "action": "keep"},
            {"source_labels": [f"{_POD}_phase"], "regex": "Running", "action": "keep"},
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": [f"{_POD}_name"], "target_label": "pod"},
            {
                "source_labels": where,
                "regex": "(.+);(.+);(.+)",
                "target_label": "__metrics_path__",
                "replacement": f"/api/v1/namespaces/$3/pods/$1:$2/proxy{contract.PATH_METRICS}",
            },
        ],
    }
    if app == contract.ENGINE_APP:
        job["relabel_configs"].append({"source_labels": [_INSTANCE], "target_label": contract.SERIES_LABEL})
    if app == "sluice-operator":
        job["honor_labels"] = True
        job["metric_relabel_configs"] = [
            {"source_labels": ["name"], "regex": "(.+)", "target_label": contract.SERIES_LABEL}
        ]
    return job
