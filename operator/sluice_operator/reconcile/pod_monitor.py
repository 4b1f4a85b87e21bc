"""The PodMonitor of one resource, where the cluster has that kind. A failure never keeps a pass from scaling."""

import json
import logging
from dataclasses import dataclass
from typing import Final

from sluice_operator import render
from sluice_operator.cluster.client import ClusterError, ForeignObject, is_owned
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names

log = logging.getLogger(__name__)

_REPEAT_SECONDS: Final = 600.0  # a PodMonitor that was changed or deleted by hand is restored after so long
_RETRY_SECONDS: Final = 60.0  # after an attempt that failed
_KIND: Final = "PodMonitor"


@dataclass(frozen=True, slots=True)
class AppliedMonitor:
    """What this process has applied."""

    fingerprint: int | None = None  # of the PodMonitor; None: none was applied
    checked_at: float | None = None  # monotonic seconds of the last attempt
    problem: str = ""  # why it failed; each problem is logged once


async def ensure_pod_monitor(target: Target, state: AppliedMonitor, context: Context) -> AppliedMonitor:
    """Apply the PodMonitor, or delete the one that an operator with other settings has applied.

    Raises OwnerDeleted. Other errors are logged and kept in the state until an attempt succeeds.
    """
    settings, now = context.settings.pod_monitor, context.clock()
    manifest = None if settings is None else render.pod_monitor(target.resource, settings)
    fingerprint = None if manifest is None else hash(json.dumps(manifest, sort_keys=True))
    pause = _RETRY_SECONDS if state.problem else _REPEAT_SECONDS
    is_due = state.checked_at is None or now - state.checked_at >= pause
    if not is_due and (fingerprint == state.fingerprint or state.problem):
        return state
    problem = ""
    try:
        if not await context.cluster.serves(_KIND):
            fingerprint = None
        elif manifest is not None:
            await context.cluster.apply(manifest, owner=target.document)
        else:
            await _remove(target, context)
    except (ClusterError, ForeignObject) as error:
        problem, fingerprint = str(error), None
        if problem != state.problem:
            log.warning("no PodMonitor for %s/%s: %s", target.key.namespace, target.key.name, problem)
    return AppliedMonitor(fingerprint, now, problem)


async def _remove(target: Target, context: Context) -> None:
    where = (_KIND, target.key.namespace, names.pod_monitor(target.key.name))
    live = await context.cluster.get(*where)
    if live is not None and is_owned(live, target.document):
        await context.cluster.delete(*where)
