"""Who leaves first when the count falls."""

from sluice_operator.decide.values import Memory, Observed, PodView


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
    return tuple(
        pod.name for pod in sorted(staying, key=lambda pod: _cost(pod, spared.get(pod.name, 0.0)))[: max(count, 0)]
    )


def _cost(pod: PodView, spared: float) -> tuple[int, float, float, float, str]:
    if pod.phase in ("unschedulable", "failed"):
        return 0, 0.0, 0.0, 0.0, pod.name
    if pod.phase != "ready":
        return 1, -pod.since, 0.0, 0.0, pod.name
    if pod.sample is None:
        return 3, 0.0, 0.0, 0.0, pod.name
    in_flight = pod.sample.running + pod.sample.waiting
    return 2, float(in_flight > 0.0), spared, in_flight, pod.name
