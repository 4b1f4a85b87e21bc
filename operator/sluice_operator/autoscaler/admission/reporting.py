"""Reports of rejected requests: one when rejections begin, and one per interval while they recur."""

from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.explain import sentences
from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.windows import WINDOW, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Reason

AGAIN: Final = 300.0  # seconds between two reports


def refusals(
    spec: LLMDeploymentSpec,
    seen: Fresh,
    memory: AutoscalerState,
    wanted: Recommendation,
    limit: int | None,
    ordered: int,
    now: float,
) -> tuple[tuple[Reason, ...], AutoscalerState]:
    """The sentence about rejections, where one is due.

    Any reason that an engine counts is included (`sluice_rejections_total`). `ordered` replicas are set now.
    """
    window = over(memory, now, WINDOW)
    count = window.outcome.refused  # requests that another replica served were not rejected
    if limit is None or count < 1.0:
        return (), memory
    if memory.refused_said_at is not None and now - memory.refused_said_at < AGAIN:
        return (), memory
    coming = cold_start.remaining(memory, seen, now)
    why = sentences.refused(spec, wanted, limit, count, window.seconds, window.rate("finished_total"), coming, ordered)
    return (why,), replace(memory, refused_said_at=now)
