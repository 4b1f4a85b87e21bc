"""Who leaves first when the count falls, and who is told so beforehand."""

from dataclasses import replace
from typing import Final

from sluice_operator.decide.values import Memory, Observed, PodView

NOTICE: Final = 0.25  # of the stabilisation window: after that much quiet it is likelier to end than to begin again


def victims(observed: Observed, memory: Memory, count: int) -> tuple[str, ...]:
    """The `count` pods that cost least to lose, cheapest first: those that never got a place, those still loading
    (only a changed spec lowers the count while one loads: `replicas.step`), then the idle ones and of the busy ones the
    coldest, each the emptiest of its like. A pod of which nothing is known counts as busy. Draining pods are leaving
    already.

    Who is busy ends what it has begun with and nothing is lost; a cache is lost. How cold one is, is what it spared of
    late (`PodTotals.spared`), not what it ever spared: conversations end. The emptiest first, whatever its cache, costs 0.7
    points of hits on long prompts with shared prefixes (LOG.md): who of many busy ones runs fewest just now is chance."""
    staying = [pod for pod in observed.pods if pod.phase != "draining"]
    spared = {pod.name: pod.spared for pod in memory.pods}
    if memory.retiring is not None:
        spared[memory.retiring] = -1.0  # it has been left out for minutes already
    return tuple(
        pod.name for pod in sorted(staying, key=lambda pod: _cost(pod, spared.get(pod.name, 0.0)))[: max(count, 0)]
    )


def note_retiring(observed: Observed, memory: Memory, due: bool) -> Memory:
    """Name who leaves next, while it is `due` that somebody does, and stay with that one: who is named gets no new
    conversations from a router that reads it, and by the time that it leaves most of those that its cache knows have
    ended. That keeps about 0.7 points of an endless cache's hits on long prompts with shared prefixes (LOG.md)."""
    ready = {pod.name for pod in observed.pods if pod.phase == "ready"}
    if not due or len(ready) < 2:
        return memory if memory.retiring is None else replace(memory, retiring=None)
    if memory.retiring in ready:
        return memory
    memory = replace(memory, retiring=None)
    first = victims(observed, memory, 1)
    return replace(memory, retiring=first[0]) if first and first[0] in ready else memory


def _cost(pod: PodView, spared: float) -> tuple[int, float, float, float, str]:
    if pod.phase in ("unschedulable", "failed"):
        return 0, 0.0, 0.0, 0.0, pod.name
    if pod.phase != "ready":
        return 1, -pod.since, 0.0, 0.0, pod.name
    if pod.sample is None:
        return 3, 0.0, 0.0, 0.0, pod.name
    in_flight = pod.sample.running + pod.sample.waiting
    return 2, float(in_flight > 0.0), spared, in_flight, pod.name
