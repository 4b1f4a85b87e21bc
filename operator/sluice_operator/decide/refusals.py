"""Saying why requests are turned away: once when it begins and again from time to time, however often it comes and goes."""

from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import coldstart, explain
from sluice_operator.decide.need import Need
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Memory, Reason
from sluice_operator.decide.windows import WINDOW, over

AGAIN: Final = 300.0  # seconds


def refusals(
    spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, wanted: Need, limit: int | None, ordered: int, now: float
) -> tuple[tuple[Reason, ...], Memory]:
    """The sentence about refusals, where one is due. Any reason that an engine counts (`sluice_rejections_total`).
    `ordered` replicas are asked for now."""
    window = over(memory, now, WINDOW)
    count = window.outcome.refused  # who was offered to another replica and served there was not refused
    if limit is None or count < 1.0:
        return (), memory
    if memory.refused_said_at is not None and now - memory.refused_said_at < AGAIN:
        return (), memory
    coming = coldstart.remaining(memory, seen, now)
    why = explain.refused(spec, wanted, limit, count, window.seconds, window.rate("finished_total"), coming, ordered)
    return (why,), replace(memory, refused_said_at=now)
