"""Who leaves first when the count falls."""

from sluice_operator.decide.values import Observed, PodView


def victims(observed: Observed, count: int) -> tuple[str, ...]:
    """The `count` pods that cost least to lose, cheapest first: those that never got a place, those still loading
    (only a changed spec lowers the count while one loads: `replicas.step`), then the emptiest with the coldest cache.
    A pod of which nothing is known counts as busy. Draining pods are leaving already."""
    staying = [pod for pod in observed.pods if pod.phase != "draining"]
    return tuple(pod.name for pod in sorted(staying, key=_cost)[: max(count, 0)])


def _cost(pod: PodView) -> tuple[int, float, float, str]:
    if pod.phase in ("unschedulable", "failed"):
        return 0, 0.0, 0.0, pod.name
    if pod.phase != "ready":
        return 1, -pod.since, 0.0, pod.name
    if pod.sample is None:
        return 3, 0.0, 0.0, pod.name
    in_flight = pod.sample.running + pod.sample.waiting
    hits = pod.sample.cached_prompt_tokens_total / max(pod.sample.prompt_tokens_total, 1.0)
    return 2, in_flight, hits, pod.name
