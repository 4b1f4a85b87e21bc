"""Metrics of the access control and of the mounted files. No label names a tenant: keys may be thousands."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from sluice import contract
from sluice_engine.server.errors import ApiError, Forbidden, Unauthorized


class AccessMetrics:
    """Every series exists from the first scrape. One event loop updates and renders them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._keys = Gauge(contract.API_KEYS, "API keys in force.", registry=self._registry)
        self._refusals = Counter(
            contract.ACCESS_REFUSALS,
            "Requests refused with 401, 403 or 429.",
            ["reason"],
            registry=self._registry,
        )
        self._fault = self._gauge(
            contract.MOUNTED_FILE_FAULT,
            "1 while the file's newest content cannot be used and the last valid one applies.",
        )
        self._reloads = self._counter(contract.MOUNTED_FILE_RELOADS, "Reloads of a changed file.")
        self._failures = self._counter(
            contract.MOUNTED_FILE_FAILURES, "Contents of a changed file that were not usable."
        )
        for reason in contract.ACCESS_REFUSAL_REASONS:
            self._refusals.labels(reason)
        for file in contract.MOUNTED_FILES:
            for series in (self._fault, self._reloads, self._failures):
                series.labels(file)

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

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["file"], registry=self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["file"], registry=self._registry)
