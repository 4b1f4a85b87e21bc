"""Metrics of the access control and of the mounted files. No label names a tenant: keys may be thousands."""

from prometheus_client import CollectorRegistry, generate_latest

from sluice import contract
from sluice.metrics.create import create_counter, create_gauge
from sluice_engine.server.errors import ApiError, Forbidden, Unauthorized


class AccessMetrics:
    """Every series exists from the first scrape. One event loop updates and renders them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._keys = create_gauge(contract.API_KEYS, self._registry)
        self._refusals = create_counter(contract.ACCESS_REFUSALS, self._registry)
        self._fault = create_gauge(contract.MOUNTED_FILE_FAULT, self._registry)
        self._reloads = create_counter(contract.MOUNTED_FILE_RELOADS, self._registry)
        self._failures = create_counter(contract.MOUNTED_FILE_FAILURES, self._registry)

    def keys_loaded(self, count: int) -> None:
        """Records the number of keys in force."""
        self._keys.set(count)

    def refused(self, error: ApiError) -> None:
        """Counts a refused request."""
        forbidden = "forbidden" if isinstance(error, Forbidden) else "rate_limited"
        self._refusals.labels("unauthorized" if isinstance(error, Unauthorized) else forbidden).inc()

    def reloaded(self, file: str) -> None:
        """Records that a changed file is in force."""
        self._reloads.labels(file).inc()
        self._fault.labels(file).set(0)

    def reload_failed(self, file: str) -> None:
        """Records that a changed file cannot be used."""
        self._failures.labels(file).inc()
        self._fault.labels(file).set(1)

    def render(self) -> bytes:
        """Returns the metrics in Prometheus' text exposition format."""
        return generate_latest(self._registry)
