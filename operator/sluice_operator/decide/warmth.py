"""What a replica is missing while its prefix cache is cold."""

import math
from typing import Final

from sluice_law.work import throughput
from sluice_operator.decide.need import Need
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Memory
from sluice_operator.decide.windows import WINDOW, over

LONGEST: Final = 600.0  # seconds until a cache counts as warm: after longer the load is another one


def cold_seconds(wanted: Need, seen: Fresh, memory: Memory, now: float) -> float:
    """How many seconds of a whole replica one that begins with a cold cache is short of one with a warm cache: the time in
    which it fills its cache with the prompts that it computes, times what it holds less until then, 1 − μ(cold)/μ(warm) at
    the model's concurrency. 0 where no model is known, caches spare nothing, or nothing is computed now."""
    if wanted.judged is None:
        return 0.0
    one, recent = wanted.judged.capacity, over(memory, now, WINDOW)
    work, model, places = one.work, one.replica.model, one.concurrency
    computed = recent.rate("prompt_tokens_total") - recent.rate("cached_prompt_tokens_total")
    if work.cached <= 0.0 or computed <= 0.0:
        return 0.0
    cold = work._replace(uncached=work.uncached + work.cached, cached=0.0)
    less = 1.0 - throughput(model, cold, places) / throughput(model, work, places)
    pools = math.fsum(sample.kv_blocks * sample.block_size for _, sample in seen.known)
    return max(0.0, less) * min(pools / computed, LONGEST)
