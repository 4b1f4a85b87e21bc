"""How many requests may run and wait on one replica within the SLO.

S(n) of `workload` is linear in n, so the largest n that an inter-token target allows has a closed form. KV memory
bounds n as well. More load than these n serve first breaks the TTFT target, so the queue holds what is served in time.
"""

import math
from dataclasses import dataclass

from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, token_seconds


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's step-time model and limits. Tokens, seconds."""

    model: StepTimeModel
    kv_tokens: float
    max_concurrency: int
    min_concurrency: int = 1  # lower bound of the limit, whatever the inter-token target


@dataclass(frozen=True, slots=True)
class Targets:
    """The SLO targets: times in seconds, and the share of requests that must meet both."""

    ttft: float
    itl: float
    attainment: float = 0.99


@dataclass(frozen=True, slots=True)
class ServiceConditions:
    """What one replica serves: its limits, the mean request and the SLO targets."""

    replica: Replica
    work: Work
    targets: Targets
    margin: float = 1.0  # ≥ 1, kept between the mean inter-token time and its target


def slo_concurrency(conditions: ServiceConditions) -> int:
    """n*: the largest number of running requests that latency, memory and the configured bounds allow."""
    replica, work = conditions.replica, conditions.work
    target = conditions.targets.itl / conditions.margin
    by_itl = _itl_concurrency(replica.model, work, target, replica.max_concurrency)
    by_kv = math.floor(replica.kv_tokens / max(work.context, 1.0))  # a peak may fill the pool
    return max(1, min(max(by_itl, replica.min_concurrency), by_kv, replica.max_concurrency))


def queue_limit(rate: float, seconds: float, step_seconds: float) -> int:
    """Requests that may wait so that none waits longer than `seconds` at this service rate.

    Even at zero seconds the queue holds the requests that arrive within one step.
    """
    return max(1, math.ceil(rate * max(seconds, 0.0)), math.ceil(rate * step_seconds) + 1)


def _itl_concurrency(model: StepTimeModel, work: Work, target: float, maximum: int) -> int:
    per_sequence = token_seconds(model, work, 1.0) - model.base
    if target <= model.base:
        return 0
    if per_sequence * maximum <= target - model.base:
        return maximum
    return math.floor((target - model.base) / per_sequence)
