"""A real Prometheus beside a real cluster: it reads all pods of a release through `kubectl proxy`, labelled as the monitors do.

Debian's Prometheus cannot ask an API server for pods, so a thread writes them to the files in which it looks for targets.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sluice import contract

Object = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "charts/sluice/files/rules.yaml"
INTERVAL: Final = "15s"  # the chart's default
LOOK_SECONDS: Final = 3.0
PORTS: Final = {  # by number: the proxy to a pod knows no names
    contract.ENGINE_APP: contract.ADMIN_PORT,
    "sluice-gateway": contract.GATEWAY_ADMIN_PORT,
    "sluice-operator": 8080,
}


def configuration(folder: Path) -> str:
    """The configuration of a Prometheus that looks for its targets in the folder."""
    return json.dumps(  # JSON is YAML
        {
            "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [str(RULES)],
            "scrape_configs": [_job(app, folder) for app in PORTS],
        }
    )


def _job(app: str, folder: Path) -> Object:
    job: Object = {"job_name": app, "file_sd_configs": [{"files": [str(folder / f"{app}.json")]}]}
    if app == "sluice-operator":  # as the chart's ServiceMonitor says
        job["honor_labels"] = True
        job["metric_relabel_configs"] = [
            {"source_labels": ["name"], "regex": "(.+)", "target_label": contract.SERIES_LABEL}
        ]
    return job


def targets(pods: Sequence[Object], proxy: str) -> Mapping[str, list[Object]]:
    """Prometheus' targets of each job for the pods that run, through `kubectl proxy` at that host and port."""
    found: dict[str, list[Object]] = {app: [] for app in PORTS}
    for pod in pods:
        metadata, labels = pod["metadata"], pod["metadata"].get("labels", {})
        app = labels.get(contract.LABEL_NAME)
        if app not in PORTS or pod["status"].get("phase") != "Running":
            continue
        namespace, name = metadata["namespace"], metadata["name"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}:{PORTS[app]}/proxy{contract.PATH_METRICS}"
        given = {"namespace": namespace, "pod": name, "__metrics_path__": path}
        if app == contract.ENGINE_APP:
            given[contract.SERIES_LABEL] = labels[contract.LABEL_INSTANCE]
        found[app].append({"targets": [proxy], "labels": given})
    return found


class Targets(threading.Thread):
    """Writes the targets while it runs. `pods` lists the pods now; `folder` is the configuration's."""

    def __init__(self, folder: Path, proxy: str, pods: Callable[[], Sequence[Object]]) -> None:
        super().__init__(daemon=True)
        self._folder, self._proxy, self._pods = folder, proxy, pods
        self._ended = threading.Event()

    def run(self) -> None:
        """Write until stopped."""
        while not self._ended.wait(LOOK_SECONDS):
            for app, found in targets(self._pods(), self._proxy).items():
                written = self._folder / f"{app}.json.new"
                written.write_text(json.dumps(found))
                written.rename(self._folder / f"{app}.json")

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join(timeout=60.0)
