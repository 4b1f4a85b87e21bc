"""For who uses a model: is it fast, is it available, and what do my requests cost."""

from typing import Final

from sluice import contract
from sluice.monitoring.dashboards.panel import SELECTED as S
from sluice.monitoring.dashboards.panel import Dashboard, Panel, Query, Row
from sluice.monitoring.promql import DEPLOYMENT, attained


def _quantiles(name: str) -> tuple[Query, ...]:
    return tuple(Query(S.quantile(q, name), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99))


MODEL_USER: Final = Dashboard(
    "sluice-model-user",
    "Sluice: using a model",
    "Latency, availability and tokens of LLMDeployments, as their clients see them.",
    (
        Row(
            "Service level",
            (
                Panel(
                    "SLO attainment",
                    "Share of all offered requests that met both targets of spec.slo. Rejected and failed ones did not.",
                    "percentunit",
                    (Query(attained(S), "met"),),
                    kind="stat",
                    good_from=0.99,
                ),
                Panel(
                    "Requests",
                    "Requests that ended, per second.",
                    "reqps",
                    (Query(S.rate(contract.REQUESTS), "requests"),),
                    kind="stat",
                ),
                Panel(
                    "Output tokens",
                    "Tokens generated per second, for all clients.",
                    "short",
                    (Query(S.rate(contract.GENERATED_TOKENS), "tokens/s"),),
                    kind="stat",
                ),
                Panel(
                    "SLO attainment over time",
                    "By LLMDeployment. A dip beside high queue times is a lack of replicas.",
                    "percentunit",
                    (Query(attained(S, DEPLOYMENT), "{{namespace}}/{{llmdeployment}}"),),
                    from_zero=False,
                    width=12,
                ),
                Panel(
                    "Requests by outcome",
                    "stop and length are complete answers; abort is a client that left; rejected and error are ours.",
                    "reqps",
                    (Query(S.rate(contract.REQUESTS, by=("outcome",)), "{{outcome}}"),),
                    stacked=True,
                    width=12,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Time to first token",
                    "From arrival at the engine to the first token, queue included.",
                    "s",
                    _quantiles(contract.TIME_TO_FIRST_TOKEN),
                ),
                Panel(
                    "Inter-token latency",
                    "Between two tokens of one stream.",
                    "s",
                    _quantiles(contract.INTER_TOKEN_LATENCY),
                ),
                Panel(
                    "Whole request",
                    "From arrival to the last token: it grows with the length of the output.",
                    "s",
                    _quantiles(contract.REQUEST_DURATION),
                ),
                Panel(
                    "Wait before the first step",
                    "Part of the time to first token that is queueing.",
                    "s",
                    _quantiles(contract.QUEUE_SECONDS),
                ),
                Panel(
                    "Mean inter-token latency of a request",
                    "The number that spec.slo.itlMilliseconds is compared with.",
                    "s",
                    _quantiles(contract.TIME_PER_OUTPUT_TOKEN),
                ),
                Panel(
                    "Rejections",
                    "Why requests were rejected. They carry Retry-After, which a client should follow.",
                    "reqps",
                    (Query(S.rate(contract.REJECTIONS, by=("reason",)), "{{reason}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Tokens",
            (
                Panel(
                    "Tokens per second",
                    "Prompt tokens scheduled and output tokens generated.",
                    "short",
                    (
                        Query(S.rate(contract.PROMPT_TOKENS_TOTAL), "prompt"),
                        Query(S.rate(contract.GENERATED_TOKENS), "output"),
                    ),
                ),
                Panel(
                    "Tokens per request",
                    "Means of the requests that ended.",
                    "short",
                    (
                        Query(S.mean(contract.PROMPT_TOKENS), "prompt"),
                        Query(S.mean(contract.OUTPUT_TOKENS), "output"),
                    ),
                ),
                Panel(
                    "Prompt tokens from the prefix cache",
                    "Share of prompt tokens that were not computed again. Equal beginnings of prompts raise it.",
                    "percentunit",
                    (
                        Query(
                            f"{S.rate(contract.CACHED_PROMPT_TOKENS)} / {S.rate(contract.PROMPT_TOKENS_TOTAL)}",
                            "cached",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
