"""The PodMonitor of one resource, where the cluster has that kind. A failure never keeps a pass from scaling."""

import json
import logging
import math
from dataclasses import dataclass
from typing import Final

from sluice_operator import render
from sluice_operator.cluster.client import ClusterError, ForeignObject, Object
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names

log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 600.0  # until the kind is looked for again; one answer serves all resources
_RETRY_SECONDS: Final = 60.0  # after an attempt that failed
_KIND: Final = "PodMonitor"


@dataclass(frozen=True, slots=True)
class AppliedMonitor:
    """What this process has applied."""

    fingerprint: int | None = None  # of the PodMonitor; None: none was applied
    is_served: bool = True  # whether the cluster had the kind
    checked_at: float | None = None  # monotonic seconds of the last attempt
    problem: str = ""  # why it failed; each problem is logged once


async def ensure_pod_monitor(
    target: Target, admin_secret: str, state: AppliedMonitor, context: Context
) -> AppliedMonitor:
    """Apply the PodMonitor, or delete the one that an operator with other settings has applied.

    admin_secret: the one that the pods mount; beside it is the one whose token Prometheus sends.
    Raises OwnerDeleted. Other errors are logged and kept in the state until an attempt succeeds.
    """
    settings, now = context.settings.pod_monitor, context.clock()
    manifest = (
        None if settings is None else render.pod_monitor(target.resource, settings, _read_secret(admin_secret, context))
    )
    fingerprint = None if manifest is None else hash(json.dumps(manifest, sort_keys=True))
    is_due = state.checked_at is None or now - state.checked_at >= _pause(state, manifest, context)
    if not is_due and (fingerprint == state.fingerprint or state.problem):
        return state
    problem, is_served = "", True
    try:
        if not (is_served := context.cluster.holds(_KIND) or await context.cluster.serves(_KIND)):
            fingerprint = None
        elif manifest is not None:
            await context.cluster.apply(manifest, owner=target.document)
        else:
            await _remove(target, context)
    except (ClusterError, ForeignObject) as error:
        problem, fingerprint = str(error), None
        if problem != state.problem:
            log.warning("no PodMonitor for %s/%s: %s", target.key.namespace, target.key.name, problem)
    return AppliedMonitor(fingerprint, is_served, now, problem)


def _read_secret(admin_secret: str, context: Context) -> str:
    """The name of the Secret whose token Prometheus sends; empty if reads need none."""
    return names.read_secret(admin_secret) if context.settings.metrics_auth == "token" and admin_secret else ""


def _pause(state: AppliedMonitor, manifest: Object | None, context: Context) -> float:
    """Seconds between two attempts: one that is to be removed is looked for once, and one that others have not changed needs
    no request where the cache holds the kind."""
    if state.problem:
        return _RETRY_SECONDS
    if not state.is_served:
        return _ASK_SECONDS
    if manifest is None:
        return math.inf
    return 0.0 if context.cluster.holds(_KIND) else context.settings.monitor_interval


async def _remove(target: Target, context: Context) -> None:
    where = (_KIND, target.key.namespace, names.pod_monitor(target.key.name))
    if await context.cluster.child(*where, target.document) is not None:
        await context.cluster.delete(*where)
