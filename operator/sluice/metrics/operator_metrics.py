"""The metrics of an operator, on its health port."""

from typing import Final

from sluice import contract
from sluice.metrics.definition import Label, counter, gauge, histogram

_PASS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_RESOURCE: Final = (Label("namespace"), Label("name"))
OPERATOR: Final = (
    counter(contract.OPERATOR_RECONCILE, "Reconcile passes by result", Label("result", ("ok", "error"))),
    histogram(contract.OPERATOR_RECONCILE_SECONDS, "Duration of a reconcile pass in seconds", _PASS_BUCKETS),
    counter(
        contract.OPERATOR_DECISIONS,
        "Changes of the replica count and of the admission limits, by kind and reason",
        Label("kind", ("replicas", "admission")),
        Label("reason"),
    ),
    counter(contract.OPERATOR_SCRAPE_FAILURES, "Failed calls to engines"),
    gauge(contract.OPERATOR_WATCH_LAST_EVENT, "Seconds since the newest watch event"),
    gauge(contract.OPERATOR_LEADER, "1 while this process holds the Lease"),
    gauge(
        contract.OPERATOR_RESOURCE_REPLICAS,
        "Replicas of an LLMDeployment by its status, at the newest pass",
        *_RESOURCE,
        Label("state", ("desired", "ready")),
    ),
    gauge(
        contract.OPERATOR_RESOURCE_CONDITION,
        "1 while a condition of an LLMDeployment is True; for _other, how many have it",
        *_RESOURCE,
        Label("type", ("Available", "Ready")),
    ),
    counter(contract.OPERATOR_RESOURCE_FAILURES, "Failed reconcile passes over an LLMDeployment", *_RESOURCE),
)
