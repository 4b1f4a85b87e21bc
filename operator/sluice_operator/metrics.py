"""The operator's own metrics. Label values are reasons and kinds from this code, never a name that a user chose."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sluice import contract

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class OperatorMetrics:
    """The operator's metrics in a separate registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._reconcile = Counter(
            contract.OPERATOR_RECONCILE,
            "Reconcile passes by result",
            ["result"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            contract.OPERATOR_RECONCILE_SECONDS, "Duration of a reconcile pass in seconds", registry=self._registry
        )
        self._decisions = Counter(
            contract.OPERATOR_DECISIONS,
            "Changes of the replica count and of the admission limits, by kind and reason",
            ["kind", "reason"],
            registry=self._registry,
        )
        self._scrape_failures = Counter(
            contract.OPERATOR_SCRAPE_FAILURES, "Failed calls to engines", registry=self._registry
        )
        self._last_event = Gauge(
            contract.OPERATOR_WATCH_LAST_EVENT, "Seconds since the newest watch event", registry=self._registry
        )
        self._leader = Gauge(contract.OPERATOR_LEADER, "1 while this process holds the Lease", registry=self._registry)

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
