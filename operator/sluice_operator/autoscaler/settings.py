"""Every constant of the control law, in one frozen object: `LAW`.

Each field states its unit, its source or the measurement behind it, and the rules that read it. `make
bench-corpus ARGS='--variants constants'` measures what halving or doubling one does to attainment and cost. The constants of
the performance model, which engines share, are in `sluice_perfmodel`. What a user may choose is in the spec and not here: the
range of replicas, the memory of bursts, the KV occupancy target, the stabilization window and the idle time before scale to
zero.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LawSettings:
    """The constants, in the order in which `decide` meets them."""

    # What the replay remembers (replicas/history.py).

    slot_seconds: float = 15.0
    """Seconds of one slot of the history. Basis: three scrapes at 5 s. It bounds the state."""

    settled_seconds: float = 60.0
    """Seconds after a change of the number of ready replicas in which misses are not compared with the replay, nor order
    replicas. Basis: an answer's length; until then requests of the fleet before miss."""

    # How many replicas a load needs (replicas/rules.py).

    rise_seconds: float = 60.0
    """Seconds that a load must have lasted to be planned for: both halves must need the replicas. Basis: a cold start. A
    shorter burst is over when a replica ordered for it is ready; with one half, Azure code costs a fifth more."""

    growth_most: float = 2.0
    """Largest factor on the load or on the replicas by the last minute alone. Basis: a line through five minutes, or half
    a minute of requests, says no more. Without it, 100 requests by chance order three times the replicas."""

    trend_seconds: float = 300.0
    """Seconds over which the trend of the load is fitted, at least; a cold start if that is longer."""

    bin_seconds: float = 30.0
    """Seconds over which arrivals are counted for the trend. Basis: ten points in five minutes."""

    significance: float = 2.0
    """Standard errors by which a trend, or an excess of misses, must exceed chance. Basis: once in forty times."""

    error_seconds: float = 3600.0
    """Seconds over which the misses that came are compared with those of the replay, and shown in the status."""

    error_most: float = 1.5
    """Largest factor on the load that corrects the replay. Basis: a step-time model that is wrong by a third."""

    # How the count moves (replicas/stabilization.py); the stabilization window is in the spec.

    usual_cold_start_seconds: float = 60.0
    """Seconds of a cold start until one is measured. Basis: a small model from a volume; an 8B model from a hub takes
    100 to 300 s."""

    cold_start_quantile: float = 0.8
    """Quantile of the measured starts that is planned with. Basis: a plan on the median is too early half of the time."""

    cold_starts_kept: int = 16
    """Starts whose durations are kept. Basis: a fifth of them is three, enough to estimate the slow ones."""

    starting_most_seconds: float = 1800.0
    """Seconds in one phase after which a pod no longer counts as starting, and the longest valid start. Basis: a pod whose
    volume never mounts must not block scale-in for ever."""

    # How deployments share an accelerator budget (budget/share.py).

    budget_keep_factor: float = 1.5
    """Factor on the gain of a replica in force against one that would take its accelerators. Basis: while the new one
    starts (100 to 300 s) they serve no request, which is a third of the quarter of an hour that the prediction remembers.
    At 1 two equal loads move a replica in every other pass, at 1.5 in none while predictions vary by a fifth. Doubled: a
    load that fell by half keeps its replicas."""

    budget_keep_rate: float = 1.0 / 60.0
    """Requests per second in time that a replica in force counts beside its gain. Basis: one request per minute is less
    than a cold start costs. It decides only between small loads."""

    budget_division_seconds: float = 5.0
    """Age of a division of a budget among more than 50 deployments from which it is made anew although no count, priority or
    size has changed. Basis: the interval of the passes, which is the age of the predictions anyway. Halved: twice the work,
    20 ms for 1,000 deployments each time. Doubled: accelerators move to a larger gain 10 s later."""

    # Measurements (signals/).

    window_seconds: float = 30.0
    """Seconds over which rates, percentiles, occupancy and misses are measured, and between two scale-ins. Basis: six
    scrapes at 5 s, and shorter than a cold start."""

    delta_seconds: float = 4.5
    """Longest span, in seconds, of a delta that is merged from shorter ones. Basis: just under the default interval. It
    bounds the state."""

    usual_scrape_seconds: float = 5.0
    """Seconds between two scrapes of one pod until they are measured, the least age of a stale sample, and how long after
    a change of the fleet the shadow queues still hold the requests of the fleet before. Source: the operator's default
    interval."""

    stale_after_scrapes: float = 3.0
    """Scrape intervals after which a sample is stale. Basis: two lost scrapes in a row are noise, three are an outage."""

    lengths_seconds: float = 120.0
    """Time constant, in seconds, of the mean request lengths. Basis: lengths change slower than rates."""

    least_requests: float = 5.0
    """Fewest requests behind a usable mean length, and the weight of lengths that a restart restores."""

    largest_value: float = 1e15
    """Largest valid number of a sample. Basis: no counter of an engine gets there. It only rejects broken samples."""

    # The admission dial (admission/).

    ttl_seconds: float = 30.0
    """Seconds that bounds are valid in an engine without a new request, at least; eight intervals of the operator if that is
    longer. Basis: six periods of 5 s."""

    slow_start_seconds: float = 5.0
    """Seconds until a new replica admits the whole n*. Basis: the router sends all requests to the emptiest replica."""

    slow_start_share: float = 0.5
    """Share of n* that a new replica admits at once. Halved: T4 99.7 instead of 99.9 %."""

    reported_change: float = 0.2
    """Relative change of the limit that is reported. Basis: a smaller change is noise. It changes no decision."""


LAW: Final = LawSettings()
