"""What one replica serves, from the engine's own measurements: its step-time model and the requests that it served.

No figure is set manually: the performance model turns the published metrics into a rate.
"""

from dataclasses import dataclass

import aiohttp

from sluice import contract
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.engines.exposition import parse
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.slo_limits import Replica, ServiceConditions, Targets, slo_concurrency
from sluice_perfmodel.workload import Work, throughput


@dataclass(frozen=True, slots=True)
class Service:
    """What one replica serves within the inter-token target."""

    concurrency: int  # n*: running requests
    rate: float  # requests per second with n* running


async def read_sample(admin: str) -> EngineSample:
    """One scrape of an engine's admin port."""
    async with aiohttp.ClientSession() as session, session.get(admin + contract.PATH_METRICS) as response:
        return parse(await response.text())


def mean_work(before: EngineSample, after: EngineSample) -> Work:
    """The mean request that an engine served between two samples, in tokens."""
    arrived = max(after.arrived_total - before.arrived_total, 1.0)
    finished = max(after.finished_total - before.finished_total, 1.0)
    cached = (after.cached_prompt_tokens_total - before.cached_prompt_tokens_total) / arrived
    prompt = (after.prompt_tokens_total - before.prompt_tokens_total) / arrived
    output = (after.generated_tokens_total - before.generated_tokens_total) / finished
    return Work(output=output, uncached=max(prompt - cached, 1.0), cached=cached)


def one_replica(sample: EngineSample, work: Work, targets: Targets) -> Service | None:
    """The throughput of one replica at n*; None before the engine has published a model."""
    if sample.step_model is None:
        return None
    replica = Replica(
        model=sample.step_model,
        kv_tokens=sample.kv_blocks * sample.block_size,
        max_concurrency=int(sample.concurrency_max),
    )
    concurrency = slo_concurrency(ServiceConditions(replica, work, targets, PERFMODEL.limit.margin))
    return Service(concurrency, throughput(sample.step_model, work, concurrency))
