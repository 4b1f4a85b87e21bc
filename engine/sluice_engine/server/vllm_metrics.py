"""Series under vLLM's names, for endpoint pickers, dashboards and KEDA recipes that were written for them."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from sluice.metrics import vllm_metrics as names
from sluice.metrics.create import create_gauge
from sluice_engine import messages


class VllmMetrics:
    """The series of one engine. Those of the KV pool and of adapters exist once the engine is loaded."""

    def __init__(self, served_name: str, wall: Callable[[], float] = time.time) -> None:
        """`wall()` returns seconds since 1970."""
        self._wall = wall
        self._registry = CollectorRegistry()
        self._running = create_gauge(names.RUNNING, self._registry).labels(served_name)
        self._waiting = create_gauge(names.WAITING, self._registry).labels(served_name)
        self._usage = create_gauge(names.KV_CACHE_USAGE, self._registry).labels(served_name)
        self._cache = create_gauge(names.CACHE_CONFIG, self._registry)
        self._adapters = create_gauge(names.LORA_REQUESTS, self._registry)

    def on_ready(self, message: messages.Ready) -> None:
        """Records the engine's KV pool."""
        self._cache.labels(f"{message.block_size:g}", str(message.num_blocks)).set(1)
        self._adapters.labels("0", "", "").set(self._wall())

    def on_report(self, report: messages.StepReport) -> None:
        """Records the requests and blocks after a step."""
        total = report.blocks_held + report.blocks_cached + report.blocks_free
        self._running.set(report.running)
        self._waiting.set(report.waiting)
        self._usage.set(report.blocks_held / total if total else 0.0)

    def render(self) -> bytes:
        """Returns the series in Prometheus' text exposition format."""
        return generate_latest(self._registry)
