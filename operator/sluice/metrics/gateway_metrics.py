"""The metrics of a gateway, on its admin port."""

from typing import Final

from sluice import contract
from sluice.metrics.definition import Label, counter, gauge, histogram

GATEWAY: Final = (
    counter(contract.GATEWAY_REQUESTS, "Answered requests.", Label("status", contract.GATEWAY_STATUSES)),
    counter(contract.GATEWAY_CHOSEN, "Replicas chosen, by what decided.", Label("reason", contract.GATEWAY_CHOICES)),
    counter(
        contract.GATEWAY_REVISION_REQUESTS,
        "Requests of models with a canary.",
        Label("revision", contract.GATEWAY_REVISIONS),
        Label("result", contract.GATEWAY_REVISION_RESULTS),
    ),
    counter(
        contract.GATEWAY_RETRIES, "Requests sent to another replica.", Label("reason", contract.GATEWAY_RETRY_REASONS)
    ),
    counter(contract.GATEWAY_RETRIES_DENIED, "Retries beyond the budget."),
    counter(contract.GATEWAY_BROKEN_STREAMS, "Responses that a replica did not complete."),
    counter(contract.GATEWAY_RESUMED, "Broken streams sent to another replica to go on."),
    gauge(contract.GATEWAY_IN_FLIGHT, "Requests in flight."),
    gauge(contract.GATEWAY_HELD, "Requests held while no replica is ready."),
    gauge(contract.GATEWAY_REPLICAS, "Replicas by state.", Label("state", contract.GATEWAY_REPLICA_STATES)),
    gauge(contract.GATEWAY_FOLLOWED, "Replicas whose events of the KV cache arrive."),
    counter(
        contract.GATEWAY_REJECTIONS,
        "Requests that the gateway rejected itself.",
        Label("reason", contract.GATEWAY_REJECTION_REASONS),
    ),
    counter(contract.GATEWAY_FAULTS, "Faults that took a replica out.", Label("kind", contract.GATEWAY_FAULT_KINDS)),
    gauge(
        contract.GATEWAY_QUEUED,
        "Requests that wait while all replicas are at their limits.",
        Label("priority", contract.GATEWAY_PRIORITIES),
    ),
    histogram(
        contract.GATEWAY_QUEUE_SECONDS,
        "Wait of requests that waited in the queue and started.",
        contract.LATENCY_BUCKETS,
    ),
    counter(contract.GATEWAY_PROMPT_TOKENS, "Prompt tokens, as replicas counted them."),
    counter(contract.GATEWAY_CACHED_TOKENS, "Of these, found in a prefix cache."),
    counter(contract.GATEWAY_EXPECTED_TOKENS, "Of these, expected to be found."),
    histogram(
        contract.GATEWAY_OVERHEAD,
        "From the whole request to its first sending, without its waits.",
        contract.LATENCY_BUCKETS,
    ),
)
