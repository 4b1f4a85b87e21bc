"""The gateway's metrics. Names and labels come from `sluice.metrics`, never from a request."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from sluice import contract
from sluice.httpapi.errors import ApiError
from sluice.metrics.create import create_counter, create_gauge, create_histogram

disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class GatewayMetrics:
    """All series of one gateway."""

    def __init__(self) -> None:
        self.refresh: Callable[[], None] = lambda: None  # called before the metrics are rendered
        self._registry = CollectorRegistry()
        requests = create_counter(contract.GATEWAY_REQUESTS, self._registry)
        chosen = create_counter(contract.GATEWAY_CHOSEN, self._registry)
        # By label: each request counts in both, and a look-up in the library takes a lock.
        self._requests = {status: requests.labels(status) for status in contract.GATEWAY_STATUSES}
        self._chosen = {reason: chosen.labels(reason) for reason in contract.GATEWAY_CHOICES}
        revisions = create_counter(contract.GATEWAY_REVISION_REQUESTS, self._registry)
        self._revisions = {
            (revision, result): revisions.labels(revision, result)
            for revision in contract.GATEWAY_REVISIONS
            for result in contract.GATEWAY_REVISION_RESULTS
        }
        self.retries = create_counter(contract.GATEWAY_RETRIES, self._registry)
        self.retries_denied = create_counter(contract.GATEWAY_RETRIES_DENIED, self._registry)
        self.broken_streams = create_counter(contract.GATEWAY_BROKEN_STREAMS, self._registry)
        self.resumed = create_counter(contract.GATEWAY_RESUMED, self._registry)
        self.in_flight = create_gauge(contract.GATEWAY_IN_FLIGHT, self._registry)
        self.held = create_gauge(contract.GATEWAY_HELD, self._registry)
        self.replicas = create_gauge(contract.GATEWAY_REPLICAS, self._registry)
        self.followed = create_gauge(contract.GATEWAY_FOLLOWED, self._registry)
        self.rejections = create_counter(contract.GATEWAY_REJECTIONS, self._registry)
        self.faults = create_counter(contract.GATEWAY_FAULTS, self._registry)
        self.queued = create_gauge(contract.GATEWAY_QUEUED, self._registry)
        self.queue_seconds = create_histogram(contract.GATEWAY_QUEUE_SECONDS, self._registry)
        self.prompt_tokens = create_counter(contract.GATEWAY_PROMPT_TOKENS, self._registry)
        self.cached_tokens = create_counter(contract.GATEWAY_CACHED_TOKENS, self._registry)
        self.expected_tokens = create_counter(contract.GATEWAY_EXPECTED_TOKENS, self._registry)
        self.overhead = create_histogram(contract.GATEWAY_OVERHEAD, self._registry)

    def answered(self, status: int | None) -> None:
        """A request ended with this HTTP status; None if its client left."""
        if status is None:
            self._requests["disconnected"].inc()
        else:
            self._requests["5xx" if status >= 500 else "4xx" if status >= 400 else "2xx"].inc()

    def chose(self, reason: str) -> None:
        """A replica was chosen, for one of `contract.GATEWAY_CHOICES`."""
        self._chosen[reason].inc()

    def revision_answered(self, revision: str, result: str) -> None:
        """A request ended at a revision, both of the contract's names."""
        self._revisions[revision, result].inc()

    def rejected(self, error: ApiError) -> None:
        """The gateway rejects a request by this error of its own."""
        known = error.code in contract.GATEWAY_REJECTION_REASONS
        self.rejections.labels(error.code if known else "invalid").inc()

    def waiting(self, by_priority: Iterable[tuple[int, int]]) -> None:
        """How many requests wait, as pairs of a priority and a count."""
        counts = dict.fromkeys(contract.GATEWAY_PRIORITIES, 0)
        for priority, count in by_priority:
            counts["normal" if priority == 0 else "high" if priority > 0 else "low"] += count
        for name, count in counts.items():
            self.queued.labels(name).set(count)

    def render(self) -> bytes:
        """The metrics in Prometheus' text format."""
        self.refresh()
        return generate_latest(self._registry)
