"""Figures of an overload track: goodput relative to an upper bound, goodput of high priority, and fairness.

The capacity bound uses true output lengths and is proven in `bound.py`.

The fairness gap is that of virtual token counters (Sheng et al., OSDI'24): the difference of the weighted tokens served
to two tenants over any interval in which both have waiting requests. Their theorem bounds it by
2·max(w_p·L_input, w_q·M) for one engine. R engines with separate counters have R times that bound.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, unavoidable_gap
from sluice_sim.benchmark.search.bound import Engines, SloTargets, capacity_bound
from sluice_sim.benchmark.track import Track
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results.run import Run
from sluice_sim.results.score import good_share


def overloaded(track: Track, run: Run) -> dict[str, float]:
    """The overload figures of one run; empty for a track without overload."""
    if track.overload is None:
        return {}
    records = run.records
    good = sum(one.good for one in records)
    model, most = track.hardware_profile().model, track.spec().engine.scheduling.max_num_seqs
    bound = capacity_bound(records, Engines(track.most, model, most), SloTargets(track.ttft, track.itl))
    high = [one for one in records if one.priority > 0]
    low = [one for one in records if one.priority <= 0]
    found = {
        "good": float(good),
        "bound": float(bound),
        "of_bound": good / bound if bound else 1.0,
        "high_good": good_share(high),
        "low_good": good_share(low),
        "fairness_gap": fairness_gap(records, run.seconds),
        "fairness_bound": gap_bound(records, track.kv_tokens, track.most),
    }
    for tenant, _ in track.overload.tenants:
        found[f"good_{tenant}"] = good_share([one for one in records if one.tenant == tenant])
    return found


def gap_bound(records: Sequence[RequestRecord], pool: int, replicas: int) -> float:
    """Sum of the theorem's bound over all engines, in weighted tokens."""
    longest = max((one.prompt for one in records), default=0)
    return replicas * 2.0 * unavoidable_gap(longest, pool)


def fairness_gap(records: Sequence[RequestRecord], seconds: float) -> float:
    """Largest difference in service between two tenants over an interval in which both have waiting requests.

    In weighted tokens, with a resolution of one second.
    """
    count = int(seconds) + 2
    served: dict[str, list[float]] = {}
    waiting: dict[str, list[int]] = {}
    for one in records:
        if one.first_at is None:
            continue
        begun = min(count - 1, int(one.first_at))
        got = served.setdefault(one.tenant, [0.0] * count)
        got[begun] += PROMPT_WEIGHT * one.prompt
        ended = min(count - 1, int(one.ended_at if one.ended_at is not None else seconds))
        each = OUTPUT_WEIGHT * one.output / (ended - begun + 1)
        for second in range(begun, ended + 1):
            got[second] += each
        queued = waiting.setdefault(one.tenant, [0] * (count + 1))
        queued[min(count, int(one.arrived_at) + 1)] += 1
        queued[begun] -= 1 if begun > int(one.arrived_at) else 0
        if begun <= int(one.arrived_at):
            queued[min(count, int(one.arrived_at) + 1)] -= 1
    return max((_gap(served, waiting, a, b, count) for a, b in combinations(sorted(served), 2)), default=0.0)


def _gap(
    served: Mapping[str, Sequence[float]], waiting: Mapping[str, Sequence[int]], a: str, b: str, count: int
) -> float:
    worst = difference = low = high = 0.0
    queue_a = queue_b = 0
    for second in range(count):
        queue_a += waiting[a][second]
        queue_b += waiting[b][second]
        if queue_a <= 0 or queue_b <= 0:
            difference = low = high = 0.0
            continue
        difference += served[a][second] - served[b][second]
        low, high = min(low, difference), max(high, difference)
        worst = max(worst, high - low)
    return worst
