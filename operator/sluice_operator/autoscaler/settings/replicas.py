"""The constants of the replicas dial: demand, reactive guard, model confidence, stabilization, caches."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """How demand and capacity become a number of replicas."""

    # Demand.

    scale_out_quantile: float = 0.85
    """Quantile of the load one cold start ahead that is planned for; the queueing model covers shorter bursts. 0.9
    gives the same digits on Azure 2023; 0.75 gives T2 98.88 % and T4 97.33 %; the median T3 98.6 %."""

    scale_in_quantile: float = 0.9
    """Quantile of the load that a smaller fleet must survive for a whole stabilization window. 0.8: another seed of T4
    falls from 99.47 to 98.24 %; 0.975 holds T4 at 6.45 instead
    of 6.30 replicas."""

    arrival_sigmas: float = 2.0
    """Standard deviations subtracted from a count of arrivals. Basis: chance alone exceeds them once in forty times.
    Halved, doubled: not measured."""

    backlog_seconds: float = 30.0
    """Seconds in which the backlog is to be drained. Basis: one window, so that the next one shows it. With load
    shedding at least a cold start: T1 needs 1 % less, T3 1.114 → 1.10. Halved, doubled: not measured."""

    least_requests: float = 5.0
    """Fewest requests behind a usable mean length. Halved, doubled: not measured."""

    # Reactive guard.

    guard_most: float = 2.0
    """Largest scale-out by measurements alone, in multiples of the ready replicas. Basis: a missed target shows that
    more are needed but not how many. Halved, doubled: not measured."""

    guard_sigmas: float = 3.0
    """Standard deviations by which misses must exceed chance. Basis: there are hundreds of checks an hour. At 2, four
    misses of 105 doubled T3's fleet (17.65 instead of 13.08 GPU-hours). Doubled: not measured."""

    guard_busy: float = 0.5
    """Share of one replica's concurrency below which more replicas cannot make a request faster. Halved, doubled: not
    measured."""

    patience: float = 0.5
    """Share of the TTFT target that a request may be planned to wait; the rest is left for its prefill. Doubled: T3
    falls to 98.80 % with more changes. At 0, T3 needs 28.3 instead of 25.8 GPU-hours. Halved: not measured."""

    longest_look_back_seconds: float = 60.0
    """Longest time, in seconds, that the guard waits after a change of the fleet. Basis: a TTFT target of an hour must
    not disable it for an hour. Halved, doubled: not measured."""

    # Model confidence.

    confidence_least: float = 0.5
    """Least model confidence: half of the predicted capacity. Basis: from there on the guard decides. Halved, doubled:
    not measured."""

    confidence_fall: float = 0.9
    """Factor of the confidence per period with SLO misses. Basis: seven periods from 1 to 0.5. Halved, doubled: not
    measured."""

    confidence_rise: float = 0.02
    """Rise of the confidence per period with the SLO met under load. Basis: half an hour to recover from an error of a
    fifth. Halved, doubled: not measured."""

    confidence_period_seconds: float = 15.0
    """Seconds between two updates of the confidence. Basis: half a window, so that each has new measurements. Halved,
    doubled: not measured."""

    confirming_load: float = 0.5
    """Share of the load that the fleet was sized for from which a met SLO confirms the model. Halved, doubled: not
    measured."""

    free_kv: float = 0.5
    """Share of the KV occupancy target below which a fleet without a usable model may shrink. Basis: only a plainly
    empty fleet. Halved, doubled: not measured."""

    # Stabilization.

    stabilization_slots: int = 60
    """Slots in which the recommendations of the stabilization window are kept. It bounds the state; a slot has one
    second at least. Halved, doubled: not measured."""

    cold_start_hold_most_seconds: float = 600.0
    """Longest cold start, in seconds, that lengthens the stabilization window. Basis: one image pull of half an hour
    must not hold replicas for as long. Halved, doubled: not measured."""

    caches_per_move: float = 2.0
    """Cold caches that a scale-in costs: the removed replica's is computed again, and a later replica starts cold
    (rent-or-buy rule). Halved: T3's prefix hits 94.3 instead of 95.2 % of an infinite cache's, at 2.8 % fewer
    GPU-hours. At 3: 95.7 % at 1.4 % more; doubled: not measured."""

    warming_most_windows: float = 2.0
    """Most stabilization windows added for caches. Basis: a user's short window must not become minutes. Halved,
    doubled: not measured."""

    warming_most_seconds: float = 600.0
    """Longest time, in seconds, until a cache counts as warm. Basis: the load has changed after a longer time. Three
    times as much: T3's hits 93.3 instead of 92.9 % for 1.4 % more GPU-hours. Halved: not measured."""

    scale_in_notice: float = 0.25
    """Share of the stabilization window after which the next scale-in candidate is named to routers. Doubled: T3's hits
    94.7 instead of 95.2 % at 1.1 % fewer GPU-hours. At once: 94.8 % at 1.6 % more. Halved: not measured."""
