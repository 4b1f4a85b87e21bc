"""The ConfigMap of the autoscaler's estimates and of a canary's state: read when an operator first sees a resource,
written when they change.

Losing the estimates costs minutes of learning, so an error never stops a pass: it is logged and reported as an Event. A
transition of the canary is written before it is carried out, so there an error stops the pass.
"""

import logging
import math
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import TypeAdapter

from sluice_operator import render
from sluice_operator.autoscaler.handover import Estimates
from sluice_operator.canary import CanaryState, Counts
from sluice_operator.cluster.client import ClusterError, ForeignObject, Object
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names
from sluice_operator.render.estimates import CANARY_KEY, ESTIMATES_KEY

log = logging.getLogger(__name__)

MAX_BYTES: Final = 64 * 1024  # sixteen cold starts of pods with the longest names take 6 KiB
_FORMAT: Final[TypeAdapter[Estimates]] = TypeAdapter(Estimates)
_CANARY: Final[TypeAdapter[CanaryState]] = TypeAdapter(CanaryState)


@dataclass(frozen=True, slots=True)
class SavedEstimates:
    """The estimates and the canary's state as this process last read or wrote them."""

    estimates: Estimates = field(default_factory=Estimates)
    canary: CanaryState = field(default_factory=CanaryState)
    saved_at: float = -math.inf  # monotonic seconds of the last write, whether or not it was accepted
    problem: str = ""  # why they could not be read or written, as a sentence
    version: str = ""  # resourceVersion of the ConfigMap as read or written; empty: neither

    def is_due(self, now: float, interval: float) -> bool:
        """True if nothing was written for `interval` seconds."""
        return now - self.saved_at >= interval


async def read_estimates(document: Object, context: Context) -> SavedEstimates:
    """Return the saved estimates of the LLMDeployment `document`; empty if there are none or they cannot be parsed.

    Raises ClusterError.
    """
    namespace, name = document["metadata"]["namespace"], names.estimates(document["metadata"]["name"])
    found = await context.cluster.child("ConfigMap", namespace, name, document)
    if found is None:
        return SavedEstimates()
    try:
        return SavedEstimates(_parsed(found), _parsed_canary(found), version=str(found["metadata"]["resourceVersion"]))
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        problem = f"ConfigMap {namespace}/{name} is not readable ({reason}). The autoscaler learns its estimates anew."
        log.warning("%s", problem)
        return SavedEstimates(problem=problem)


async def save_estimates(
    target: Target,
    saved: SavedEstimates,
    estimates: Estimates,
    canary: CanaryState,
    context: Context,
    *,
    interval: float,
) -> SavedEstimates:
    """Write the estimates and what the canary has counted if they changed and none were written for `interval` seconds, or
    if another writer has changed or deleted the ConfigMap.

    Raises OwnerDeleted, and ClusterError for errors that a retry can solve.
    """
    now = context.clock()
    is_undone = await _is_undone(target, saved, context)
    unchanged = (estimates, canary) == (saved.estimates, saved.canary) and not is_undone
    if unchanged or not saved.is_due(now, context.settings.children_interval if is_undone else interval):
        return saved
    try:
        version = await _write(target, estimates, canary, context)
    except (ForeignObject, ClusterError) as error:
        if isinstance(error, ClusterError) and not error.is_refusal:
            raise
        problem = f"The autoscaler's estimates are not saved, so a restarted operator learns them anew: {error}"
        if problem != saved.problem:
            log.warning("%s", problem)
        return replace(saved, saved_at=now, problem=problem)
    return SavedEstimates(estimates, canary, now, version=version)


async def _is_undone(target: Target, saved: SavedEstimates, context: Context) -> bool:
    """True if another writer has changed or deleted the ConfigMap since this process read or wrote it."""
    if not saved.version:
        return False
    live = await context.cluster.get("ConfigMap", target.key.namespace, names.estimates(target.key.name))
    return live is None or live["metadata"]["resourceVersion"] != saved.version


async def save_canary(target: Target, saved: SavedEstimates, canary: CanaryState, context: Context) -> SavedEstimates:
    """Write a transition of the canary at once, before it is carried out; counts wait for `save_estimates`.

    Raises ClusterError, ForeignObject, OwnerDeleted.
    """
    if _without_counts(canary) == _without_counts(saved.canary):
        return saved
    version = await _write(target, saved.estimates, canary, context)
    return SavedEstimates(saved.estimates, canary, context.clock(), version=version)


def _without_counts(canary: CanaryState) -> CanaryState:
    """Whether children exist needs no write of its own either: a restarted operator looks for them."""
    return replace(canary, counts=Counts(), seen=(), exists=False)


async def _write(target: Target, estimates: Estimates, canary: CanaryState, context: Context) -> str:
    """Returns the new resourceVersion. An operator without canaries keeps the ConfigMap as it was: a state at its defaults
    is not written."""
    text = _FORMAT.dump_json(estimates).decode()
    state = "" if canary == CanaryState() else _CANARY.dump_json(canary).decode()
    written = await context.cluster.apply(render.estimates(target.resource, text, state), owner=target.document)
    return str(written["metadata"]["resourceVersion"])


def _parsed(found: Object) -> Estimates:
    """Parse the ConfigMap's text. Raises ValueError."""
    text = str((found.get("data") or {}).get(ESTIMATES_KEY, ""))
    if len(text) > MAX_BYTES:
        raise ValueError(f"{ESTIMATES_KEY} has {len(text)} characters, more than {MAX_BYTES}")
    return _FORMAT.validate_json(text)


def _parsed_canary(found: Object) -> CanaryState:
    """Parse the canary's state; the default one without an entry. Raises ValueError."""
    text = str((found.get("data") or {}).get(CANARY_KEY, ""))
    if len(text) > MAX_BYTES:
        raise ValueError(f"{CANARY_KEY} has {len(text)} characters, more than {MAX_BYTES}")
    return _CANARY.validate_json(text) if text else CanaryState()
