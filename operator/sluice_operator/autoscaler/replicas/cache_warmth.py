"""The capacity that a replica lacks while its prefix cache is cold."""

import math
from typing import Final

from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.windows import WINDOW, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.workload import throughput

LONGEST: Final = 600.0  # seconds until a cache counts as warm: the load has changed after a longer time


def cold_seconds(wanted: Recommendation, seen: Fresh, memory: AutoscalerState, now: float) -> float:
    """The capacity that a replica with a cold cache lacks until the cache is warm, in seconds of a whole replica.

    It is the time in which the replica fills its cache with the prompts that it computes, times its relative loss until
    then, 1 − μ(cold)/μ(warm) at the model's concurrency. It is 0 where no model is known, caches save nothing or no
    prompt is computed now.
    """
    if wanted.prediction is None:
        return 0.0
    one, recent = wanted.prediction.capacity, over(memory, now, WINDOW)
    work, model, places = one.work, one.replica.model, one.concurrency
    computed = recent.rate("prompt_tokens_total") - recent.rate("cached_prompt_tokens_total")
    if work.cached <= 0.0 or computed <= 0.0:
        return 0.0
    cold = work._replace(uncached=work.uncached + work.cached, cached=0.0)
    less = 1.0 - throughput(model, cold, places) / throughput(model, work, places)
    pools = math.fsum(sample.kv_blocks * sample.block_size for _, sample in seen.known)
    return max(0.0, less) * min(pools / computed, LONGEST)
