"""A real Prometheus over a made-up past: two engines, a gateway and an operator, one sample a minute for half an hour.

The series are those of the definitions, so no process has to run. Prometheus reads them from a block that promtool makes.
"""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from sluice.metrics import ENGINE, GATEWAY, OPERATOR, Metric
from tests.operator.security.chart_objects import stored

START: Final = 1_790_000_000
STEP: Final = 60
SAMPLES: Final = 31
END: Final = START + STEP * (SAMPLES - 1)
TARGETS: Final = (
    ('namespace="apps",llmdeployment="chat",pod="chat-1",job="sluice-engine"', ENGINE),
    ('namespace="apps",llmdeployment="chat",pod="chat-2",job="sluice-engine"', ENGINE),
    ('namespace="sluice-system",pod="gateway-1",job="sluice-gateway"', GATEWAY),
    ('namespace="sluice-system",pod="operator-1",job="sluice-operator"', OPERATOR),
)


def past() -> str:
    """The samples in the OpenMetrics text format."""
    lines = []
    for target, metrics in TARGETS:
        for series in (f"up{{{target}}}", *(f"{name}" for metric in metrics for name in _series(metric, target))):
            rises = not series.startswith("up") and _rises(series)
            lines += [f"{series} {(10 + index if rises else 1)} {START + index * STEP}" for index in range(SAMPLES)]
    return "\n".join([*lines, "# EOF\n"])


def _series(metric: Metric, target: str) -> Iterator[str]:
    """As Prometheus stores them: of a label that the target has, too, one is renamed, or the metric's replaces it where the
    chart's monitor honours labels. A series of one LLMDeployment gets the label by which engines name it.
    """
    honours, copies = _of_monitor(target)
    own = {each.name: each.values[0] if each.values else "x" for each in metric.labels}
    if honours:
        target = ",".join(pair for pair in target.split(",") if pair.partition("=")[0] not in own)
    names = {name: f"exported_{name}" if f"{name}=" in target else name for name in own}
    labels = [f'{names[name]}="{value}"' for name, value in own.items()]
    labels += [f'{copy}="{own[source]}"' for source, copy in copies.items() if source in own]
    for number, value in enumerate(metric.labels[0].values[1:] if len(metric.labels) == 1 else ()):
        yield f'{metric.name}{{{target},{metric.labels[0].name}="{value}"}}'
        assert number < 20
    if metric.kind == "histogram":
        for bound in ("0.1", "1.0", "+Inf"):
            yield f'{metric.name}_bucket{{{",".join([target, *labels])},le="{bound}"}}'
        yield f"{metric.name}_sum{{{target}}}"
        yield f"{metric.name}_count{{{target}}}"
    else:
        yield f"{metric.name}{{{','.join([target, *labels])}}}"


def _of_monitor(target: str) -> tuple[bool, dict[str, str]]:
    """Whether the monitor of this target honours labels, and the labels of series that it copies: name → copy."""
    if 'job="sluice-operator"' not in target:
        return False, {}
    (monitor,) = stored("monitored", "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    copies = {each["sourceLabels"][0]: each["targetLabel"] for each in endpoint.get("metricRelabelings", ())}
    return bool(endpoint.get("honorLabels")), copies


def _rises(series: str) -> bool:
    return series.partition("{")[0].endswith(("_total", "_bucket", "_sum", "_count"))


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a range: its labels, and its points as (seconds since the epoch, value)."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Prometheus:
    """A server that runs."""

    url: str

    def query(self, expression: str, at: float = END) -> list[dict[str, Any]]:
        """The result of an instant query: series with labels and a value. Raises AssertionError with Prometheus' error."""
        return self._result("query", {"query": expression, "time": at})

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """The result between two times, in steps of `step` seconds. Raises AssertionError with Prometheus' error."""
        found = self._result("query_range", {"query": expression, "start": start, "end": end, "step": step})
        return [Series(each["metric"], [(float(at), float(value)) for at, value in each["values"]]) for each in found]

    def rules(self) -> dict[str, str]:
        """What each rule says of its last evaluation: its name → "ok", "unknown" or the error."""
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
        return {rule["name"]: rule.get("lastError") or rule["health"] for group in groups for rule in group["rules"]}

    def _result(self, kind: str, parameters: dict[str, str | float]) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{kind}?{urllib.parse.urlencode(parameters)}", timeout=10
            ) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from error
        return result

    def wait(self, expression: str, count: int) -> list[dict[str, Any]]:
        """The result of an instant query of now, once it has `count` series."""
        until = time.monotonic() + 60
        while len(found := self.query(expression, time.time())) < count:
            assert time.monotonic() < until, found
            time.sleep(0.05)  # another process scrapes
        return found


def is_installed() -> bool:
    """Whether Prometheus and its promtool are on the PATH."""
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


@contextmanager
def running(folder: Path, samples: str, configuration: str = "global: {}\n") -> Iterator[Prometheus]:
    """Serve these samples, and what is scraped by the configuration. Skips where Prometheus is not installed."""
    if not is_installed():
        pytest.skip("Prometheus is not installed")
    (folder / "past.txt").write_text(samples)
    (folder / "prometheus.yaml").write_text(configuration)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "past.txt"), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "config.file": folder / "prometheus.yaml",
        "storage.tsdb.path": folder / "data",
        "storage.tsdb.retention.time": "100y",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["prometheus", *(f"--{name}={value}" for name, value in options.items())], stderr=log
        )
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}", process, folder / "log")
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.kill()  # its data is not kept, and writing a head of many series took it more than 20 s
            process.wait(timeout=20)


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2):
                return
        except OSError:
            time.sleep(0.05)  # another process starts
    raise AssertionError(f"Prometheus is not ready after 60 s: {log.read_text()}")
