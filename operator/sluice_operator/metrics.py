"""What the operator publishes about itself. Labels are reasons and kinds from our own code, never a name from a user."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sluice import contract

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class OperatorMetrics:
    """The operator's own counters in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._reconcile = Counter(
            contract.OPERATOR_RECONCILE,
            "Passes over one resource, by how they ended",
            ["result"],
            registry=self._registry,
        )
        self._seconds = Histogram(contract.OPERATOR_RECONCILE_SECONDS, "Time of one pass", registry=self._registry)
        self._decisions = Counter(
            contract.OPERATOR_DECISIONS, "Dials moved, by dial and reason", ["kind", "reason"], registry=self._registry
        )
        self._scrape_failures = Counter(
            contract.OPERATOR_SCRAPE_FAILURES, "Engines that did not answer a scrape", registry=self._registry
        )
        self._last_event = Gauge(
            contract.OPERATOR_WATCH_LAST_EVENT, "Seconds since a watch last delivered", registry=self._registry
        )
        self._leader = Gauge(contract.OPERATOR_LEADER, "1 while this process holds the Lease", registry=self._registry)

    def reconciled(self, result: str, seconds: float) -> None:
        """One pass ended with `ok` or `error`."""
        self._reconcile.labels(result).inc()
        self._seconds.observe(seconds)

    def decided(self, kind: str, reason: str) -> None:
        """One dial moved."""
        self._decisions.labels(kind, reason).inc()

    def scrapes_failed(self, count: int) -> None:
        """So many engines did not answer."""
        self._scrape_failures.inc(count)

    def watch_silent_for(self, seconds: float) -> None:
        """Age of the newest watch event."""
        self._last_event.set(seconds)

    def leads(self, leader: bool) -> None:
        """Whether this process holds the Lease."""
        self._leader.set(1 if leader else 0)

    def text(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self._registry)
