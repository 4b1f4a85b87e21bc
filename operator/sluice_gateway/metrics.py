"""The gateway's metrics. Labels come from the contract, never from a request."""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from sluice import contract

disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class GatewayMetrics:
    """All series of one gateway."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter(
            contract.GATEWAY_REQUESTS, "Answered requests.", "status", contract.GATEWAY_STATUSES
        )
        self.chosen = self._counter(
            contract.GATEWAY_CHOSEN, "Replicas chosen, by what decided.", "reason", contract.GATEWAY_CHOICES
        )
        self.retries = self._counter(
            contract.GATEWAY_RETRIES, "Requests sent to another replica.", "reason", contract.GATEWAY_RETRY_REASONS
        )
        self.retries_denied = self._counter(contract.GATEWAY_RETRIES_DENIED, "Retries beyond the budget.")
        self.broken_streams = self._counter(
            contract.GATEWAY_BROKEN_STREAMS, "Responses that a replica did not complete."
        )
        self.in_flight = self._gauge(contract.GATEWAY_IN_FLIGHT, "Requests in flight.")
        self.held = self._gauge(contract.GATEWAY_HELD, "Requests held while no replica is ready.")
        self.replicas = self._gauge(
            contract.GATEWAY_REPLICAS, "Replicas by state.", "state", contract.GATEWAY_REPLICA_STATES
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

    def render(self) -> bytes:
        """The metrics in Prometheus' text format."""
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
