"""The operator's own metrics. Label values are reasons and kinds from this code; names of resources are in
`resource_metrics`, whose number of series is bounded.
"""

from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from sluice import contract
from sluice.metrics.create import create_counter, create_gauge, create_histogram
from sluice_operator.resource_metrics import ResourceMetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class OperatorMetrics:
    """The operator's metrics in a separate registry."""

    def __init__(self, most_resources: int = 1000) -> None:
        """`most_resources`: number of LLMDeployments with series of their own."""
        self._registry = CollectorRegistry()
        self.resources = ResourceMetrics(most_resources)
        self._registry.register(self.resources)
        self._reconcile = create_counter(contract.OPERATOR_RECONCILE, self._registry)
        self._seconds = create_histogram(contract.OPERATOR_RECONCILE_SECONDS, self._registry)
        self._decisions = create_counter(contract.OPERATOR_DECISIONS, self._registry)
        self._scrape_failures = create_counter(contract.OPERATOR_SCRAPE_FAILURES, self._registry)
        self._last_event = create_gauge(contract.OPERATOR_WATCH_LAST_EVENT, self._registry)
        self._leader = create_gauge(contract.OPERATOR_LEADER, self._registry)

    def reconciled(self, result: str, seconds: float) -> None:
        """Record one reconcile pass of `seconds` that ended with `ok` or `error`."""
        self._reconcile.labels(result).inc()
        self._seconds.observe(seconds)

    def decided(self, kind: str, reason: str) -> None:
        """Count one change of the replica count or of the admission limits."""
        self._decisions.labels(kind, reason).inc()

    def scrapes_failed(self, count: int) -> None:
        """Count `count` failed calls to engines."""
        self._scrape_failures.inc(count)

    def watch_silent_for(self, seconds: float) -> None:
        """Set the age of the newest watch event."""
        self._last_event.set(seconds)

    def leads(self, leader: bool) -> None:
        """Record whether this process holds the Lease."""
        self._leader.set(1 if leader else 0)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
