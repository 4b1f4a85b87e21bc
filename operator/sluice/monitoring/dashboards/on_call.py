"""For who is on call: what is broken, since when, and in which part."""

from typing import Final

from sluice import contract
from sluice.monitoring.dashboards.panel import EVERYTHING as E
from sluice.monitoring.dashboards.panel import SELECTED as S
from sluice.monitoring.dashboards.panel import Dashboard, Panel, Query, Row
from sluice.monitoring.promql import DEPLOYMENT, attained

_ENGINE: Final = (*DEPLOYMENT, "pod")
_NAME: Final = "{{namespace}}/{{llmdeployment}}"

ON_CALL: Final = Dashboard(
    "sluice-on-call",
    "Sluice: on call",
    "Alerts, errors and the state of engines, gateways and the operator. Each alert has a section in RUNBOOK.md.",
    (
        Row(
            "Now",
            (
                Panel(
                    "Alerts that fire",
                    "Of the chart's rules. Each has a section in charts/sluice/RUNBOOK.md.",
                    "short",
                    (Query('count(ALERTS{alertname=~"Sluice.*",alertstate="firing"}) or vector(0)', "firing"),),
                    kind="stat",
                    width=6,
                ),
                Panel(
                    "Engines up",
                    "Engine pods whose metrics Prometheus reads.",
                    "short",
                    (Query(f'sum(up{{job="{contract.ENGINE_APP}"}})', "up"),),
                    kind="stat",
                    good_from=1,
                    width=6,
                ),
                Panel(
                    "SLO attainment",
                    "Of all LLMDeployments.",
                    "percentunit",
                    (Query(attained(E), "met"),),
                    kind="stat",
                    good_from=0.99,
                    width=6,
                ),
                Panel(
                    "Requests held",
                    "Requests that gateways hold because a model has no ready replica.",
                    "short",
                    (Query(E.total(contract.GATEWAY_HELD), "held"),),
                    kind="stat",
                    width=6,
                ),
            ),
        ),
        Row(
            "LLMDeployments",
            (
                Panel(
                    "SLO attainment",
                    "By LLMDeployment; `kubectl sluice explain NAME` says why its replicas are what they are.",
                    "percentunit",
                    (Query(attained(S, DEPLOYMENT), _NAME),),
                    from_zero=False,
                ),
                Panel(
                    "Errors and rejections",
                    "Requests that ended without an answer, by LLMDeployment and outcome.",
                    "reqps",
                    (
                        Query(
                            S.rate(contract.REQUESTS, 'outcome=~"error|rejected"', (*DEPLOYMENT, "outcome")),
                            "{{llmdeployment}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Time to first token, p99",
                    "By LLMDeployment.",
                    "s",
                    (
                        Query(
                            S.quantile(0.99, contract.TIME_TO_FIRST_TOKEN, DEPLOYMENT),
                            _NAME,
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Conditions",
            (
                Panel(
                    "Ready and Available",
                    "1 while the condition is True; `kubectl get llmd` has the reason. Available: pods serve, if need be those "
                    "of an earlier spec.",
                    "short",
                    (
                        Query(
                            S.total(contract.OPERATOR_RESOURCE_CONDITION, by=(*DEPLOYMENT, "type")),
                            f"{_NAME} {{{{type}}}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Failed passes by LLMDeployment",
                    "Passes that ended with an error, which is in the operator's log; they are repeated.",
                    "short",
                    (Query(S.rate(contract.OPERATOR_RESOURCE_FAILURES, by=DEPLOYMENT), _NAME),),
                    width=12,
                ),
            ),
        ),
        Row(
            "Engines",
            (
                Panel(
                    "Requests by pod",
                    "Running and waiting. One pod far above the others: look at the routing policy and at that pod.",
                    "short",
                    (
                        Query(S.total(contract.REQUESTS_RUNNING, by=_ENGINE), "{{pod}} running"),
                        Query(S.total(contract.REQUESTS_WAITING, by=_ENGINE), "{{pod}} waiting"),
                    ),
                ),
                Panel(
                    "KV cache by pod",
                    "Held by running requests. Near 1, requests are preempted.",
                    "percentunit",
                    (Query(S.series(contract.KV_OCCUPANCY_RATIO), "{{pod}}"),),
                ),
                Panel(
                    "Step time, p99",
                    "One step makes one token for each running request.",
                    "s",
                    (Query(S.quantile(0.99, contract.STEP_SECONDS, _ENGINE), "{{pod}}"),),
                ),
                Panel(
                    "Preemptions",
                    "Requests that lost their KV blocks and compute again, or were copied to host memory.",
                    "short",
                    (
                        Query(S.rate(contract.PREEMPTIONS, by=_ENGINE), "{{pod}} preempted"),
                        Query(S.rate(contract.SWAPS, by=_ENGINE), "{{pod}} copied"),
                    ),
                ),
                Panel(
                    "Engines that do not answer",
                    "Pods whose metrics Prometheus cannot read: starting, crashed or cut off by a NetworkPolicy.",
                    "short",
                    (Query(f'sum by (namespace, pod) (up{{job="{contract.ENGINE_APP}"}} == bool 0)', "{{pod}}"),),
                ),
                Panel(
                    "Faults beside requests",
                    "Files of Secrets that cannot be used, lost measurements and refused keys.",
                    "short",
                    (
                        Query(S.total(contract.MOUNTED_FILE_FAULT, by=(*_ENGINE, "file")), "{{pod}} {{file}}"),
                        Query(S.rate(contract.METRICS_FAULTS), "metrics faults"),
                        Query(S.rate(contract.ACCESS_REFUSALS, by=("reason",)), "{{reason}}"),
                    ),
                ),
            ),
        ),
        Row(
            "Gateways",
            (
                Panel(
                    "Answers by status",
                    "Of all gateways. 5xx are faults of ours, 4xx of clients.",
                    "reqps",
                    (Query(E.rate(contract.GATEWAY_REQUESTS, by=("status",)), "{{status}}"),),
                    stacked=True,
                ),
                Panel(
                    "Replicas, retries, broken streams",
                    "Retries beyond the budget are denied: replicas fail faster than others can take over.",
                    "short",
                    (
                        Query(f"max by (state) ({E.series(contract.GATEWAY_REPLICAS)})", "replicas {{state}}"),
                        Query(E.rate(contract.GATEWAY_RETRIES, by=("reason",)), "retry {{reason}}"),
                        Query(E.rate(contract.GATEWAY_RETRIES_DENIED), "retries denied"),
                        Query(E.rate(contract.GATEWAY_BROKEN_STREAMS), "broken streams"),
                        Query(E.rate(contract.GATEWAY_RESUMED), "resumed streams"),
                    ),
                ),
                Panel(
                    "Rejections by gateways",
                    "Before a replica saw the request.",
                    "reqps",
                    (Query(E.rate(contract.GATEWAY_REJECTIONS, by=("reason",)), "{{reason}}"),),
                    stacked=True,
                ),
                Panel(
                    "Queue at gateways",
                    "Requests that wait while all replicas are at their limits.",
                    "short",
                    (
                        Query(E.total(contract.GATEWAY_QUEUED, by=("priority",)), "{{priority}}"),
                        Query(E.total(contract.GATEWAY_HELD), "held"),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Time added by gateways, p99",
                    "From the whole request to its sending, and the wait of queued requests.",
                    "s",
                    (
                        Query(E.quantile(0.99, contract.GATEWAY_OVERHEAD), "overhead"),
                        Query(E.quantile(0.99, contract.GATEWAY_QUEUE_SECONDS), "queue"),
                    ),
                ),
                Panel(
                    "Requests while there is a canary",
                    "Of models with a canary, by revision and result: what decides on its promotion.",
                    "reqps",
                    (
                        Query(
                            E.rate(contract.GATEWAY_REVISION_REQUESTS, by=("revision", "result")),
                            "{{revision}} {{result}}",
                        ),
                    ),
                ),
                Panel(
                    "Faults that took a replica out",
                    "By what the gateway saw.",
                    "short",
                    (Query(E.rate(contract.GATEWAY_FAULTS, by=("kind",)), "{{kind}}"),),
                ),
            ),
        ),
        Row(
            "Operator",
            (
                Panel(
                    "Leaders",
                    "1 for each release: more or fewer is a fault.",
                    "short",
                    (Query(E.total(contract.OPERATOR_LEADER, by=("namespace",)), "{{namespace}}"),),
                ),
                Panel(
                    "Passes",
                    "Reconcile passes by result, and calls to engines that failed.",
                    "short",
                    (
                        Query(E.rate(contract.OPERATOR_RECONCILE, by=("result",)), "{{result}}"),
                        Query(E.rate(contract.OPERATOR_SCRAPE_FAILURES), "failed scrapes"),
                    ),
                ),
                Panel(
                    "Time of a pass, p99; age of the newest event",
                    "A pass that takes seconds waits for the API server or for engines.",
                    "s",
                    (
                        Query(E.quantile(0.99, contract.OPERATOR_RECONCILE_SECONDS), "pass"),
                        Query(f"max({E.series(contract.OPERATOR_WATCH_LAST_EVENT)})", "newest event"),
                    ),
                ),
            ),
        ),
    ),
)
