"""For who plans capacity: how much of the fleet is used, by what, and what more load would do."""

from typing import Final

from sluice import contract
from sluice.monitoring.dashboards.panel import EVERYTHING as E
from sluice.monitoring.dashboards.panel import SELECTED as S
from sluice.monitoring.dashboards.panel import Dashboard, Panel, Query, Row
from sluice.monitoring.promql import DEPLOYMENT, ended

_NAME: Final = "{{namespace}}/{{llmdeployment}}"
_REPLICAS: Final = f"count by ({', '.join(DEPLOYMENT)}) ({S.series(contract.REQUESTS_RUNNING)})"

CAPACITY: Final = Dashboard(
    "sluice-capacity",
    "Sluice: capacity",
    "Replicas, their use, and the room that is left. `sluice simulate` answers what another fleet would do.",
    (
        Row(
            "Fleet",
            (
                Panel(
                    "Replicas",
                    "Engine pods that serve metrics, by LLMDeployment.",
                    "short",
                    (Query(_REPLICAS, _NAME),),
                    stacked=True,
                ),
                Panel(
                    "Replicas by status",
                    "Desired and ready, as the operator reports them. A gap that stays: no accelerator is free, or no pod starts.",
                    "short",
                    (
                        Query(
                            S.total(contract.OPERATOR_RESOURCE_REPLICAS, by=(*DEPLOYMENT, "state")),
                            f"{_NAME} {{{{state}}}}",
                        ),
                    ),
                ),
                Panel(
                    "Arrivals per replica",
                    "Requests per second; its highest value within the SLO is what one replica holds.",
                    "reqps",
                    (Query(S.rate_per_pod(contract.REQUESTS_ARRIVED, DEPLOYMENT), _NAME),),
                ),
                Panel(
                    "Decisions of the operator",
                    "Changes of replicas and of admission limits, by reason.",
                    "short",
                    (Query(E.rate(contract.OPERATOR_DECISIONS, by=("kind", "reason")), "{{kind}} {{reason}}"),),
                ),
            ),
        ),
        Row(
            "Use",
            (
                Panel(
                    "Time spent in steps",
                    "Mean share of replicas' time. Decoding is cheaper in company, so a busy replica still takes requests.",
                    "percentunit",
                    (Query(S.rate_per_pod(contract.BUSY_SECONDS, DEPLOYMENT), _NAME),),
                ),
                Panel(
                    "KV cache",
                    "Blocks held by running requests, kept for prefixes, and free.",
                    "short",
                    (Query(S.total(contract.KV_BLOCKS, by=("state",)), "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Concurrency and its limits",
                    "Running requests beside the limit in force and its bounds. At the limit, requests wait.",
                    "short",
                    (
                        Query(S.total(contract.REQUESTS_RUNNING), "running"),
                        Query(S.total(contract.REQUESTS_WAITING), "waiting"),
                        Query(S.total(contract.ADMISSION_LIMIT, 'kind="concurrency"'), "limit"),
                        Query(S.total(contract.ADMISSION_LIMIT, 'kind="concurrency_max"'), "highest limit"),
                    ),
                ),
                Panel(
                    "Tokens per second and replica",
                    "Output tokens; compare models and accelerators by it.",
                    "short",
                    (Query(S.rate_per_pod(contract.GENERATED_TOKENS, DEPLOYMENT), _NAME),),
                ),
                Panel(
                    "Tokens in flight",
                    "Known tokens of running and waiting requests, by LLMDeployment.",
                    "short",
                    (Query(S.total(contract.TOKENS_IN_FLIGHT, by=DEPLOYMENT), _NAME),),
                ),
                Panel(
                    "Drafts accepted",
                    "Share of the speculated tokens that were right.",
                    "percentunit",
                    (Query(f"{S.rate(contract.ACCEPTED_DRAFT_TOKENS)} / {S.rate(contract.DRAFT_TOKENS)}", "accepted"),),
                ),
            ),
        ),
        Row(
            "Room",
            (
                Panel(
                    "Late requests at other loads",
                    "Share of requests that would be late if the load were this multiple of today's on the same replicas.",
                    "percentunit",
                    (
                        Query(
                            f"{S.rate(contract.SHADOW_LATE, by=('load',))} / on() group_left() "
                            f"{S.rate(contract.SHADOW_REQUESTS)}",
                            "load x {{load}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Offered and rejected",
                    "Requests that ended, and those that no replica took.",
                    "reqps",
                    (
                        Query(ended(S), "ended"),
                        Query(S.rate(contract.REJECTIONS), "rejected"),
                    ),
                    width=12,
                ),
            ),
        ),
        Row(
            "Engine",
            (
                Panel(
                    "Step-time model",
                    "Seconds per unit that engines have fitted. The autoscaler, admission and `sluice simulate` read it.",
                    "s",
                    (Query(f"avg by (term) ({S.series(contract.STEP_MODEL_SECONDS)})", "{{term}}"),),
                ),
                Panel(
                    "Error of the model",
                    "Mean relative error. Above a half, decisions rest on measurements alone.",
                    "percentunit",
                    (Query(f"avg by ({', '.join(DEPLOYMENT)}) ({S.series(contract.STEP_MODEL_ERROR)})", _NAME),),
                ),
                Panel(
                    "Cold start by phase",
                    "The longest of each phase: what a replica that is ordered now needs until it serves.",
                    "s",
                    (Query(f"max by (phase) ({S.series(contract.LOAD_PHASE_SECONDS)})", "{{phase}}"),),
                    stacked=True,
                ),
            ),
        ),
    ),
)
