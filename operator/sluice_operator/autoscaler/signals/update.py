"""One observation folded into the signals: deltas, lengths, error tally, arrivals, cold starts, load balance."""

from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.arrival_history import ArrivalState, add_arrivals
from sluice_operator.autoscaler.signals.cold_start import record_cold_starts
from sluice_operator.autoscaler.signals.error_budget import add_outcome
from sluice_operator.autoscaler.signals.freshness import COUNTERS, FleetMetrics
from sluice_operator.autoscaler.signals.lengths import add_lengths, decay
from sluice_operator.autoscaler.signals.load_balance import update_unevenness
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta, as_fleet_delta, merge, pod_delta, pod_totals
from sluice_operator.autoscaler.signals.state import ReadyState, SignalState
from sluice_operator.autoscaler.signals.windows import WindowState, append, engines_outcome
from sluice_operator.autoscaler.values import Observed

_ARRIVED: Final = COUNTERS.index("arrived_total")
_CACHED: Final = COUNTERS.index("cached_prompt_tokens_total")


@dataclass(frozen=True, slots=True)
class _Scrapes:
    """What the newest scrapes add."""

    window: WindowState  # with the new totals; the deltas are still the old ones
    deltas: tuple[FleetDelta, ...]  # one per ready pod with a new scrape
    arrivals: tuple[tuple[float, float, float], ...]  # (from, to, count) per pod
    joined: float  # increase of running requests since the last scrape


def update_signals(
    signals: SignalState, fleet: FleetMetrics, observed: Observed, ttft_target: float, now: float
) -> SignalState:
    """The signals with this observation. `ttft_target` is in seconds."""
    found = _take(signals.window, fleet, ttft_target, now)
    window, lengths, errors = found.window, signals.lengths, signals.errors
    deltas = window.deltas
    if found.deltas:
        delta = merge(found.deltas)
        deltas = append(deltas, delta)
        lengths = add_lengths(lengths, delta, found.joined, now)
        errors = add_outcome(errors, engines_outcome(delta), now)
    oldest = now - LAW.signals.window_seconds
    arrivals = signals.arrivals
    if found.arrivals:
        arrivals = ArrivalState(add_arrivals(arrivals.slots, found.arrivals, now), arrivals.prior)
    ready = len(fleet.ready)
    return SignalState(
        window=replace(window, deltas=tuple([delta for delta in deltas if oldest < delta.at <= now])),
        lengths=lengths,
        errors=errors,
        arrivals=arrivals,
        cold_starts=record_cold_starts(signals.cold_starts, observed),
        balance=update_unevenness(signals.balance, fleet, now),
        ready=signals.ready if ready == signals.ready.count else ReadyState(ready, now),
    )


def _take(window: WindowState, fleet: FleetMetrics, ttft_target: float, now: float) -> _Scrapes:
    """The deltas of every pod with a new scrape, and the totals that the next deltas are taken from.

    Loading engines contribute only arrivals, and only where their count is above zero: zero arrivals carry no
    information about the load.
    """
    before = {pod.name: pod for pod in window.pods}
    present = {pod.name for pod in (*fleet.ready, *(pod for pod, _ in fleet.loading))}
    after = {name: totals for name, totals in before.items() if name in present}
    gap, reset_until, joined = window.scrape_gap, window.reset_until, 0.0
    deltas: list[FleetDelta] = []
    arrivals: list[tuple[float, float, float]] = []
    for pod, sample in (*fleet.measured, *fleet.loading):
        at = now if pod.sample_at is None else pod.sample_at
        old = before.get(pod.name)
        if old is not None and at <= old.at:
            continue
        new = after[pod.name] = pod_totals(pod.name, at, sample)
        if old is None:
            continue
        delta = pod_delta(old, new)
        if delta is None:
            reset_until = now + LAW.signals.window_seconds
            continue
        arrived = (old.at, new.at, delta.counters[_ARRIVED])
        if pod.phase != "ready":
            arrivals += [arrived] if arrived[2] > 0.0 else []
            continue
        gap = _smoothed_gap(gap, at - old.at)
        warmth = old.cache_warmth * decay(old.at, new.at) + delta.counters[_CACHED]
        after[pod.name] = replace(new, cache_warmth=warmth)
        deltas.append(as_fleet_delta(delta, new.at - old.at, sample.kv_blocks, now, ttft_target))
        arrivals.append(arrived)
        joined += new.running - old.running
    pods = tuple([after[name] for name in sorted(after)])
    return _Scrapes(WindowState(pods, window.deltas, gap, reset_until), tuple(deltas), tuple(arrivals), joined)


def _smoothed_gap(old: float | None, seconds: float) -> float:
    """The smoothed time between two scrapes of one pod, seconds."""
    newest = min(seconds, LAW.signals.longest_scrape_gap_seconds)
    return newest if old is None else old + LAW.signals.scrape_gap_smoothing * (newest - old)
