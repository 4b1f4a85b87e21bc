"""The capacity that a replica lacks while its prefix cache is cold."""

import math

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_perfmodel.capacity import Capacity
from sluice_perfmodel.workload import throughput


def warming_seconds(snapshot: Snapshot, capacity: Capacity | None) -> float:
    """The capacity that a replica with a cold cache lacks until the cache is warm, in seconds of a whole replica.

    It is the time in which the replica fills its cache with the prompts that it computes, times its relative loss until
    then, 1 − μ(cold)/μ(warm) at the model's concurrency. It is 0 where no model is known, caches save nothing or no
    prompt is computed now.
    """
    if capacity is None:
        return 0.0
    work, model, concurrency = capacity.conditions.work, capacity.conditions.replica.model, capacity.concurrency
    computed = snapshot.window.rate("prompt_tokens_total") - snapshot.window.rate("cached_prompt_tokens_total")
    if work.cached <= 0.0 or computed <= 0.0:
        return 0.0
    cold = work._replace(uncached=work.uncached + work.cached, cached=0.0)
    loss = 1.0 - throughput(model, cold, concurrency) / throughput(model, work, concurrency)
    pools = math.fsum(sample.kv_blocks * sample.block_size for _, sample in snapshot.fleet.measured)
    return max(0.0, loss) * min(pools / computed, LAW.replicas.warming_most_seconds)
