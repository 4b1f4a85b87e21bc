"""Sends the admission limits of a decision to the engines that do not follow them already."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import Bounds, Decision, EngineSample
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod, replicas_of
from sluice_operator.engines.client import ScrapeError
from sluice_operator.reconcile.context import Context

log = logging.getLogger(__name__)

TTL_INTERVALS: Final = 8.0  # TTL of the limits in intervals
SPARE_INTERVALS: Final = 3.0  # limits are sent again while this is left: two late or failed passes change no engine
_QUEUE_CHANGE: Final = 0.1  # share by which the bound of the queue, which follows each sample, must move to be sent


@dataclass(frozen=True, slots=True)
class SentLimits:
    """What an engine was sent last: it keeps these bounds until `until`, monotonic seconds."""

    bounds: Bounds
    until: float


async def send_limits(
    token: str | None, fleet: ObservedFleet, decision: Decision, before: Mapping[str, SentLimits], context: Context
) -> tuple[dict[str, SentLimits], tuple[str, ...]]:
    """PATCH /limits on every engine that has new bounds, whose bounds expire soon, or that needs a Retry-After for a
    replica that is starting.

    Returns what each engine was sent last, by pod, and one sentence per engine where the call failed. Such an engine
    keeps its last limits until their TTL ends, and then uses its targets file.
    """
    bounds, ttl = dict(decision.bounds), max(TTL_INTERVALS * context.settings.interval, LAW.ttl_seconds)
    now, spare = context.clock(), SPARE_INTERVALS * context.settings.interval
    sent = {pod.view.name: before[pod.view.name] for pod in fleet.pods if pod.view.name in before}
    missing = (replicas_of(fleet.deployment) or 0) > fleet.ready  # if False, a starting pod only replaces another one

    async def send(pod: ObservedPod) -> str:
        name, loading = pod.view.name, pod.view.phase == "loading"
        retry_after = (decision.retry_after or 0.0) if missing or loading else 0.0
        has_sample = pod.view.sample is not None and pod.view.phase in ("loading", "ready")
        if not pod.answered:  # a second call would cost a second timeout
            return ""
        if pod.endpoint is None or token is None or (name not in bounds and not (has_sample and retry_after)):
            return ""
        if not retry_after and _is_in_force(pod.view.sample, bounds[name], sent.get(name), now + spare):
            return ""
        sent.pop(name, None)
        try:
            admin_token = pod.endpoint.admin_token or token
            await context.scraper.patch_limits(pod.endpoint, admin_token, bounds.get(name), retry_after, ttl)
        except ScrapeError as error:
            context.metrics.scrapes_failed(1)
            if loading:  # it serves nothing yet, and one that cannot start has just ended
                log.debug("limits not set: %s", error)
                return ""
            log.warning("limits not set: %s", error)
            return str(error)
        if name in bounds and not retry_after:
            sent[name] = SentLimits(bounds[name], now + ttl)
        return ""

    errors = tuple(filter(None, await asyncio.gather(*(send(pod) for pod in fleet.pods))))
    return sent, errors


def _is_in_force(sample: EngineSample | None, bounds: Bounds, sent: SentLimits | None, until: float) -> bool:
    """True if the engine was sent these bounds, keeps them beyond `until`, and reports them: a restarted one does not."""
    if sample is None or sent is None or sent.until <= until:
        return False
    queue_kept = abs(bounds.max_queue - sent.bounds.max_queue) <= _QUEUE_CHANGE * sent.bounds.max_queue
    reported = (sample.concurrency_min, sample.concurrency_max) == (bounds.concurrency_min, bounds.concurrency_max)
    return queue_kept and reported and replace(bounds, max_queue=sent.bounds.max_queue) == sent.bounds
