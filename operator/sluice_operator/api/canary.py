"""Defines `spec.rollout.canary`: a new spec is tried on few pods and a share of the requests before it replaces the old one."""

from typing import Annotated, ClassVar

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import ERROR_PERCENT, PERCENT


class Canary(Model):
    """Canary rollout of a change of the pods. Pods of the new spec run beside those of the old one, and the gateway sends
    them a share of the requests that grows step by step. The new spec is promoted to all pods, or rolled back, by the
    errors and the SLO attainment of its own pods. Fewer than 20 requests in a step decide nothing: the step lasts on.
    While no pod of the old spec is ready, a change applies at once."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.weightPercent * self.steps <= 100",
            sentence="rollout.canary.weightPercent times rollout.canary.steps must not exceed 100",
            holds=lambda c: c.weight_percent * c.steps <= 100,
        ),
    )

    weight_percent: Annotated[int, Field(ge=1, le=100)] = 10
    """weightPercent is by how much each step raises the canary's share of requests and pods, in percent. Defaults to
    10."""
    steps: Annotated[int, Field(ge=1, le=20)] = 5
    """steps is the number of steps. After the last one the new spec is promoted to all pods. Defaults to 5."""
    interval_seconds: Annotated[int, Field(ge=10, le=86_400)] = 300
    """intervalSeconds is how long each step lasts at least, in seconds, from when its pods are ready. Defaults to 300."""
    max_error_percent: Annotated[str, Field(max_length=6, pattern=ERROR_PERCENT)] = "1"
    """maxErrorPercent is the share of the canary's requests that may end with an error of the engine, in percent, as a
    string. More roll it back at once. Defaults to "1"."""
    min_attainment_percent: Annotated[str, Field(max_length=8, pattern=PERCENT)] = "95"
    """minAttainmentPercent is the share of the canary's requests that must meet both slo targets, in percent, as a
    string. Less at the end of a step rolls it back. Defaults to "95"."""
