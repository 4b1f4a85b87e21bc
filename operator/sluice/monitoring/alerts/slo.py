"""Alerts on the SLO and on lost requests: what clients notice.

The windows and factors of the error budget are those of the Google SRE workbook, chapter 5, "Multiwindow, Multi-Burn-Rate
Alerts": 14.4 uses 2 % of a month's budget in an hour, 6 uses 5 % in six hours.
"""

from typing import Final

from sluice import contract
from sluice.monitoring.alerts.rule import Alert, Recording
from sluice.monitoring.promql import DEPLOYMENT, Scope, attained, ended

BUDGET: Final = "sluice:slo_error_budget:ratio"
_FAILED: Final = 'outcome="error"'
_WINDOWS: Final = ("5m", "30m", "1h", "6h")
_S: Final = Scope("", "5m")
_WHERE: Final = "{{ $labels.namespace }}/{{ $labels.llmdeployment }}"
_SHARE: Final = "{{ $value | humanizePercentage }}"


def missed(window: str) -> str:
    """Return the name of the recorded share of requests that missed the SLO in this window."""
    return f"llmdeployment:sluice_slo_missed:ratio_rate{window}"


RECORDINGS: Final = tuple(
    Recording(missed(window), f"1 - {attained(Scope('', window), DEPLOYMENT)}") for window in _WINDOWS
)


def _burns(long: str, short: str, factor: float) -> str:
    return " and ".join(f"{missed(window)} > {factor:g} * scalar({BUDGET})" for window in (long, short))


_STEPS: Final = (
    (
        "`kubectl sluice explain NAME -n NAMESPACE` says what binds: the inter-token latency, the KV cache, the queue, or "
        "`maxReplicas`."
    ),
    "Replicas at `maxReplicas`, or pods pending: raise it, or free accelerators (`kubectl sluice status`).",
    (
        "Replicas below it and starting: cold starts are too long for the growth of the load. Raise `minReplicas` or add a "
        "schedule; `spec.model.cache` shortens the fetch."
    ),
    "Latency high while replicas idle: compare step times by pod on the dashboard `Sluice: on call`; replace a slow node.",
)

ALERTS: Final = (
    Alert(
        "SluiceSLOBudgetBurnsFast",
        "page",
        _burns("1h", "5m", 14.4),
        "2m",
        f"{_WHERE} missed the SLO for {_SHARE} of the requests of the last hour",
        "Requests are late, rejected or failed at more than 14.4 times the rate that the SLO allows: a month's error budget "
        "is used up in two days.",
        _STEPS,
    ),
    Alert(
        "SluiceSLOBudgetBurnsSlowly",
        "ticket",
        _burns("6h", "30m", 6.0),
        "15m",
        f"{_WHERE} missed the SLO for {_SHARE} of the requests of the last six hours",
        "Requests miss the SLO at more than six times the rate that it allows: a month's error budget is used up in five days.",
        _STEPS,
    ),
    Alert(
        "SluiceRequestsFail",
        "page",
        f"{_S.rate(contract.REQUESTS, _FAILED, DEPLOYMENT)} / {ended(_S, DEPLOYMENT)} > 0.01",
        "5m",
        f"{_SHARE} of the requests of {_WHERE} end with an error",
        "Engines answer requests with errors of their own (HTTP 500, or an error event in a stream). More replicas do not help.",
        (
            (
                "`kubectl logs -n NAMESPACE -l app.kubernetes.io/instance=NAME --since=15m | grep ERROR` has the request ids and "
                "the cause."
            ),
            (
                "Errors from one pod only: delete that pod; it drains first. From all pods since a rollout: go back to the "
                "previous `engine.image` or model revision."
            ),
            "`kubectl sluice report` packs logs and resources for a bug report, without secrets.",
        ),
    ),
    Alert(
        "SluiceRequestsAreLost",
        "ticket",
        f"({_S.rate(contract.REJECTIONS, by=DEPLOYMENT)} - {_S.rate(contract.REQUESTS_OFFERED_AGAIN, by=DEPLOYMENT)}) / "
        f"{ended(_S, DEPLOYMENT)} > 0.05",
        "10m",
        f"{_SHARE} of the requests of {_WHERE} are rejected by every replica",
        "The fleet is overloaded: it keeps the SLO of the requests that it admits and rejects the others with Retry-After.",
        (
            (
                "`kubectl sluice explain NAME -n NAMESPACE`: is the fleet at `maxReplicas`, does it wait for pods, or is "
                "`scaling.mode` not Auto?"
            ),
            (
                "Rejections by reason are on the dashboard `Sluice: using a model`: `queue_full` and `slo_unreachable` need "
                "replicas, `kv_full` needs a larger KV cache, `draining` ends by itself."
            ),
            "One tenant sends most of it: set `requestsPerMinute` or `weight` in the key file.",
        ),
    ),
    Alert(
        "SluiceRequestsAreHeld",
        "page",
        f"sum by (namespace) ({_S.series(contract.GATEWAY_HELD)}) > 0",
        "10m",
        "Gateways in {{ $labels.namespace }} hold {{ $value }} requests for models without a ready replica",
        "A model is at zero replicas, or all of its replicas are gone, and none becomes ready.",
        (
            "`kubectl sluice status -A` names the deployment and the reason: Unschedulable, ImagePullFailed, ModelNotFound, …",
            (
                "`kubectl get pods -A -l app.kubernetes.io/name=sluice-engine` shows pods that do not start; the message of the "
                "condition `Ready` has the remedy."
            ),
            (
                "No pod at all and `minReplicas: 0`: does the operator run (SluiceOperatorIsDown), and may it reach port 8081 of "
                "the gateways?"
            ),
        ),
    ),
)
