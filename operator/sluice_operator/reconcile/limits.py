"""Sends the admission limits of a decision to the engines."""

import asyncio
import logging
from typing import Final

from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod, replicas_of
from sluice_operator.engines.client import ScrapeError
from sluice_operator.reconcile.context import Context

log = logging.getLogger(__name__)

_TTL_INTERVALS: Final = 3.0  # TTL of the limits in intervals: one or two late or failed passes change no engine


async def send_limits(token: str | None, fleet: ObservedFleet, decision: Decision, context: Context) -> tuple[str, ...]:
    """PATCH /limits on every engine that has new bounds or needs a Retry-After for a replica that is starting.

    Returns one sentence per engine where the call failed. Such an engine keeps its last limits until their TTL ends,
    and then uses its targets file.
    """
    bounds, ttl = dict(decision.bounds), _TTL_INTERVALS * context.settings.interval
    missing = (replicas_of(fleet.deployment) or 0) > fleet.ready  # if False, a starting pod only replaces another one

    async def send(pod: ObservedPod) -> str:
        name, loading = pod.view.name, pod.view.phase == "loading"
        retry_after = (decision.retry_after or 0.0) if missing or loading else 0.0
        has_sample = pod.view.sample is not None and pod.view.phase in ("loading", "ready")
        if not pod.answered:  # a second call would cost a second timeout
            return ""
        if pod.endpoint is None or token is None or (name not in bounds and not (has_sample and retry_after)):
            return ""
        try:
            await context.scraper.patch_limits(pod.endpoint, token, bounds.get(name), retry_after, ttl)
        except ScrapeError as error:
            context.metrics.scrapes_failed(1)
            if loading:  # it serves nothing yet, and one that cannot start has just ended
                log.debug("limits not set: %s", error)
                return ""
            log.warning("limits not set: %s", error)
            return str(error)
        return ""

    return tuple(filter(None, await asyncio.gather(*(send(pod) for pod in fleet.pods))))
