"""One observation folded into the signals: deltas, lengths and cold starts."""

from dataclasses import dataclass, replace

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.cold_start import record_cold_starts
from sluice_operator.autoscaler.signals.freshness import FleetMetrics
from sluice_operator.autoscaler.signals.lengths import add_lengths
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta, merge, pod_delta, pod_totals
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.signals.windows import WindowState, append
from sluice_operator.autoscaler.values import Observed


@dataclass(frozen=True, slots=True)
class _Scrapes:
    """What the newest scrapes add."""

    window: WindowState  # with the new totals; the deltas are still the old ones
    deltas: tuple[FleetDelta, ...]  # one per ready pod with a new scrape
    joined: float  # increase of running requests since the last scrape


def update_signals(
    signals: SignalState, fleet: FleetMetrics, observed: Observed, ttft_target: float, now: float
) -> tuple[SignalState, FleetDelta | None]:
    """The signals with this observation, and what it adds; None without a new scrape. `ttft_target` is in seconds."""
    found = _take(signals.window, fleet, ttft_target, now)
    window, lengths, delta = found.window, signals.lengths, None
    deltas = window.deltas
    if found.deltas:
        delta = merge(found.deltas)
        deltas = append(deltas, delta)
        lengths = add_lengths(lengths, delta, found.joined, now)
    oldest = now - LAW.window_seconds
    signals = SignalState(
        window=replace(window, deltas=tuple([one for one in deltas if oldest < one.at <= now])),
        lengths=lengths,
        cold_starts=record_cold_starts(signals.cold_starts, observed),
    )
    return signals, delta


def _take(window: WindowState, fleet: FleetMetrics, ttft_target: float, now: float) -> _Scrapes:
    """The deltas of every pod with a new scrape, and the totals that the next deltas are taken from."""
    before = {pod.name: pod for pod in window.pods}
    present = {pod.name for pod in fleet.ready}
    after = {name: totals for name, totals in before.items() if name in present}
    gap, reset_until, joined = window.scrape_gap, window.reset_until, 0.0
    deltas: list[FleetDelta] = []
    for pod, sample in fleet.measured:
        at = now if pod.sample_at is None else pod.sample_at
        old = before.get(pod.name)
        if old is not None and at <= old.at:
            continue
        new = after[pod.name] = pod_totals(pod.name, at, sample)
        if old is None:
            continue
        delta = pod_delta(old, new, sample.kv_blocks, now, ttft_target)
        if delta is None:
            reset_until = now + LAW.window_seconds
            continue
        gap = min(at - old.at, LAW.window_seconds)
        deltas.append(delta)
        joined += new.running - old.running
    pods = tuple([after[name] for name in sorted(after)])
    return _Scrapes(WindowState(pods, window.deltas, gap, reset_until), tuple(deltas), joined)
