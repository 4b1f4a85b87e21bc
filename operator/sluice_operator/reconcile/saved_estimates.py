"""The ConfigMap of the autoscaler's estimates: read when an operator first sees a resource, written when they change.

Losing it costs minutes of learning, so an error never stops a pass: it is logged and reported as an Event.
"""

import logging
import math
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import TypeAdapter

from sluice_operator import render
from sluice_operator.autoscaler.handover import Estimates
from sluice_operator.cluster.client import ClusterError, ForeignObject, Object, is_owned
from sluice_operator.reconcile.children import REJECTED
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names
from sluice_operator.render.estimates import ESTIMATES_KEY

log = logging.getLogger(__name__)

MAX_BYTES: Final = 64 * 1024  # sixteen cold starts of pods with the longest names take 6 KiB
_FORMAT: Final[TypeAdapter[Estimates]] = TypeAdapter(Estimates)


@dataclass(frozen=True, slots=True)
class SavedEstimates:
    """The estimates as this process last read or wrote them."""

    estimates: Estimates = field(default_factory=Estimates)
    saved_at: float = -math.inf  # monotonic seconds of the last write, whether or not it was accepted
    problem: str = ""  # why they could not be read or written, as a sentence

    def is_due(self, now: float, interval: float) -> bool:
        """True if nothing was written for `interval` seconds."""
        return now - self.saved_at >= interval


async def read_estimates(document: Object, context: Context) -> SavedEstimates:
    """Return the saved estimates of the LLMDeployment `document`; empty if there are none or they cannot be parsed.

    Raises ClusterError.
    """
    namespace, name = document["metadata"]["namespace"], names.estimates(document["metadata"]["name"])
    found = await context.cluster.get("ConfigMap", namespace, name)
    if found is None or not is_owned(found, document):
        return SavedEstimates()
    try:
        return SavedEstimates(_parsed(found))
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        problem = f"ConfigMap {namespace}/{name} is not readable ({reason}). The autoscaler learns its estimates anew."
        log.warning("%s", problem)
        return SavedEstimates(problem=problem)


async def save_estimates(
    target: Target, saved: SavedEstimates, estimates: Estimates, interval: float, context: Context
) -> SavedEstimates:
    """Write the estimates if they changed and none were written for `interval` seconds.

    Raises OwnerDeleted, and ClusterError for errors that a retry can solve.
    """
    now = context.clock()
    if estimates == saved.estimates or not saved.is_due(now, interval):
        return saved
    try:
        await context.cluster.apply(
            render.estimates(target.resource, _FORMAT.dump_json(estimates).decode()), owner=target.document
        )
    except (ForeignObject, ClusterError) as error:
        if isinstance(error, ClusterError) and error.status not in REJECTED:
            raise
        problem = f"The autoscaler's estimates are not saved, so a restarted operator learns them anew: {error}"
        if problem != saved.problem:
            log.warning("%s", problem)
        return replace(saved, saved_at=now, problem=problem)
    return SavedEstimates(estimates, now)


def _parsed(found: Object) -> Estimates:
    """Parse the ConfigMap's text. Raises ValueError."""
    text = str((found.get("data") or {}).get(ESTIMATES_KEY, ""))
    if len(text) > MAX_BYTES:
        raise ValueError(f"{ESTIMATES_KEY} has {len(text)} characters, more than {MAX_BYTES}")
    return _FORMAT.validate_json(text)
