"""The gateway's metrics. Labels come from the contract, never from a request."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from sluice import contract
from sluice.httpapi.errors import ApiError

disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class GatewayMetrics:
    """All series of one gateway."""

    def __init__(self) -> None:
        self.refresh: Callable[[], None] = lambda: None  # called before the metrics are rendered
        self._registry = CollectorRegistry()
        requests = self._counter(contract.GATEWAY_REQUESTS, "Answered requests.", "status", contract.GATEWAY_STATUSES)
        chosen = self._counter(
            contract.GATEWAY_CHOSEN, "Replicas chosen, by what decided.", "reason", contract.GATEWAY_CHOICES
        )
        # By label: each request counts in both, and a look-up in the library takes a lock.
        self._requests = {status: requests.labels(status) for status in contract.GATEWAY_STATUSES}
        self._chosen = {reason: chosen.labels(reason) for reason in contract.GATEWAY_CHOICES}
        revisions = Counter(
            contract.GATEWAY_REVISION_REQUESTS,
            "Requests of models with a canary.",
            ["revision", "result"],
            registry=self._registry,
        )
        self._revisions = {
            (revision, result): revisions.labels(revision, result)
            for revision in contract.GATEWAY_REVISIONS
            for result in contract.GATEWAY_REVISION_RESULTS
        }
        self.retries = self._counter(
            contract.GATEWAY_RETRIES, "Requests sent to another replica.", "reason", contract.GATEWAY_RETRY_REASONS
        )
        self.retries_denied = self._counter(contract.GATEWAY_RETRIES_DENIED, "Retries beyond the budget.")
        self.broken_streams = self._counter(
            contract.GATEWAY_BROKEN_STREAMS, "Responses that a replica did not complete."
        )
        self.resumed = self._counter(contract.GATEWAY_RESUMED, "Broken streams sent to another replica to go on.")
        self.in_flight = self._gauge(contract.GATEWAY_IN_FLIGHT, "Requests in flight.")
        self.held = self._gauge(contract.GATEWAY_HELD, "Requests held while no replica is ready.")
        self.replicas = self._gauge(
            contract.GATEWAY_REPLICAS, "Replicas by state.", "state", contract.GATEWAY_REPLICA_STATES
        )
        self.rejections = self._counter(
            contract.GATEWAY_REJECTIONS,
            "Requests that the gateway rejected itself.",
            "reason",
            contract.GATEWAY_REJECTION_REASONS,
        )
        self.faults = self._counter(
            contract.GATEWAY_FAULTS, "Faults that took a replica out.", "kind", contract.GATEWAY_FAULT_KINDS
        )
        self.queued = self._gauge(
            contract.GATEWAY_QUEUED,
            "Requests that wait while all replicas are at their limits.",
            "priority",
            contract.GATEWAY_PRIORITIES,
        )
        self.queue_seconds = Histogram(
            contract.GATEWAY_QUEUE_SECONDS,
            "Wait of requests that waited in the queue and started.",
            buckets=contract.LATENCY_BUCKETS,
            registry=self._registry,
        )
        self.prompt_tokens = self._counter(contract.GATEWAY_PROMPT_TOKENS, "Prompt tokens, as replicas counted them.")
        self.cached_tokens = self._counter(contract.GATEWAY_CACHED_TOKENS, "Of these, found in a prefix cache.")
        self.expected_tokens = self._counter(contract.GATEWAY_EXPECTED_TOKENS, "Of these, expected to be found.")
        self.overhead = Histogram(
            contract.GATEWAY_OVERHEAD,
            "From the whole request to its sending.",
            buckets=contract.LATENCY_BUCKETS,
            registry=self._registry,
        )

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

    def _counter(self, name: str, text: str, label: str | None = None, values: Sequence[str] = ()) -> Counter:
        made = Counter(name, text, [label] if label else [], registry=self._registry)
        for value in values:
            made.labels(value)
        return made

    def _gauge(self, name: str, text: str, label: str | None = None, values: Sequence[str] = ()) -> Gauge:
        made = Gauge(name, text, [label] if label else [], registry=self._registry)
        for value in values:
            made.labels(value)
        return made
