"""The constants of the signals: freshness, windows, arrivals, cold starts, error budget, load balance, handover."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How scrapes become rates, percentiles and estimates."""

    # Freshness of samples and pods.

    stale_after_scrapes: float = 3.0
    """Scrape intervals after which a sample is stale. Basis: two lost scrapes in a row are noise, three are an outage.
    Halved, doubled: not measured."""

    stale_after_least_seconds: float = 4.0
    """Least age, in seconds, at which a sample is stale. Basis: one lost scrape at an interval of 1 s is no outage.
    Halved, doubled: not measured."""

    starting_most_seconds: float = 1800.0
    """Seconds in one phase after which a pod no longer counts as starting. Basis: a pod whose volume never mounts must
    not block scale-in for ever. Halved, doubled: not measured."""

    usual_scrape_seconds: float = 5.0
    """Seconds between two scrapes of one pod, until they are measured. Source: the operator's default interval.
    Halved, doubled: not measured."""

    scrape_gap_smoothing: float = 0.1
    """Weight of the newest interval in the smoothed one, 0..1. Basis: ten scrapes. Halved, doubled: not measured."""

    longest_scrape_gap_seconds: float = 60.0
    """Longest time between two scrapes, in seconds, that counts as the interval. Basis: a longer gap is an outage.
    Halved, doubled: not measured."""

    largest_value: float = 1e15
    """Largest valid number of a sample. Basis: no counter of an engine gets there. It only rejects broken samples."""

    largest_step_term_seconds: float = 1e6
    """Largest valid term of a step-time model, in seconds per unit of work. Basis: no engine needs eleven days for a
    token. It only rejects broken samples."""

    # Windows.

    window_seconds: float = 30.0
    """Seconds over which rates, percentiles and misses are measured. Basis: 30 Poisson arrivals at 1 request/s scatter
    by 18 %, and it is shorter than a cold start; it holds six scrapes at 5 s. Halved, doubled: not measured."""

    short_window_seconds: float = 10.0
    """Seconds of the shortest window. Basis: two scrapes at 5 s, so that no decision depends on one scrape. Halved,
    doubled: not measured."""

    delta_seconds: float = 0.9
    """Seconds within which the deltas of several pods are merged into one. Basis: just under the shortest interval of
    1 s; it bounds the state, not the result. Halved, doubled: not measured."""

    lengths_seconds: float = 120.0
    """Time constant, in seconds, of the mean request lengths and of a cache's warmth. Basis: lengths change slower than
    rates, and the mean of a heavy tail needs the samples. Doubled: T2 needs 1.4 % less and T3 falls below 99 %.
    Halved: not measured."""

    # Arrivals and their forecast.

    slot_seconds: float = 10.0
    """Seconds of one slot of the arrival history. Basis: two scrapes at 5 s. Halved, doubled: not measured."""

    slots_kept: int = 180
    """Slots of the arrival history. Basis: half an hour, many cold starts. Halved, doubled: not measured."""

    least_slots: int = 3
    """Fewest complete slots of a forecast. Basis: with fewer, the window's mean is as good. Halved, doubled: not
    measured."""

    # Cold starts.

    cold_starts_kept: int = 16
    """Starts whose durations are kept. Basis: a fifth of them is three, enough to estimate the slow ones. Halved,
    doubled: not measured."""

    usual_cold_start_seconds: float = 60.0
    """Seconds of a cold start, until one is measured. Basis: a small model from a volume; an 8B model from a hub takes
    100 to 300 s. Halved, doubled: not measured."""

    cold_start_quantile: float = 0.8
    """Quantile of the measured starts that is planned with. Basis: a plan on the median is too early half of the time.
    Halved, doubled: not measured."""

    longest_cold_start_seconds: float = 18_000.0
    """Longest valid duration of a start, in seconds. Basis: ten times `starting_most_seconds`. It only rejects broken
    values."""

    late_start_share: float = 0.1
    """Share of its age that a start beyond its expected duration is expected to take still. Basis: a guess for the
    Retry-After of clients. Halved, doubled: not measured."""

    late_start_most: float = 2.0
    """Largest Retry-After of a late start, in expected cold starts. Basis: a guess. Halved, doubled: not measured."""

    # Error budget.

    error_tally_seconds: float = 86_400.0
    """Time constant, in seconds, of the counts of good and missed requests. Basis: loads have a daily cycle. An
    hour, with half of the whole budget in reserve: 349.4 instead of 341.7 GPU-hours on T1's train day. Halved, doubled:
    not measured."""

    budget_reserve_base_seconds: float = 3600.0
    """Seconds of the current load whose budget is the base of the reserve. Basis: one bad hour costs the same after a
    calm day as after a calm hour. Three times as much: T1 needs 4 % more, at 98.95 instead of 98.99 %. Halved: not measured."""

    budget_reserve: float = 0.5
    """Share of that hour's budget (of the whole budget while less is known) that is kept for jumps of the load.
    Reduced to 0.3: T4's ramps fall to 99.1 %. Doubled: not measured."""

    budget_most: float = 6.0
    """Most misses that are planned for, in multiples of the share that the target allows. Basis: beyond it the misses
    come in one block. Doubled: 0.1 % of attainment for 0.7 % of T1's GPU-hours. Halved: not measured."""

    budget_least: float = 1.0
    """Fewest misses that are planned for, in the same unit. Basis: planning for more than the target after misses
    bought T3 replicas for prompts that none serves in time (23.5 → 25.1 GPU-hours). Doubled: not measured."""

    # Load balance.

    unevenness_seconds: float = 120.0
    """Time constant, in seconds, of the measured split. Basis: that of the mean lengths. Halved, doubled: not
    measured."""

    unevenness_longest_seconds: float = 30.0
    """Seconds that one observation of the split may stand for. Basis: one after a gap must not replace the estimate.
    Halved, doubled: not measured."""

    unevenness_settled_seconds: float = 60.0
    """Seconds after which a new replica's share reflects the split and no longer its start. Halved, doubled: not
    measured."""

    unevenness_least_requests: float = 4.0
    """Requests per replica below which the split cannot be distinguished from chance. Halved, doubled: not measured."""

    unevenness_bounds: tuple[float, float] = (0.05, 1.0)
    """Least and largest unevenness (1: random). Basis: no split is perfect, and more replicas do not cool a hot prefix.
    A least value of 0.05, 0.25 or 0.4 changes eight seeds of T4 by 0.01 points."""

    # Handover to a new operator process.

    restored_requests: float = 20.0
    """Weight of restored request lengths, in requests. Basis: a minute of real requests outweighs it. Halved, doubled:
    not measured."""

    restored_prior_weight: float = 5.0
    """Weight of restored arrival statistics, in multiples of the prior's. Basis: an hour of slots outweighs it. Halved,
    doubled: not measured."""

    longest_request_tokens: float = 1e7
    """Longest valid request length, in tokens. It only rejects broken values."""
