"""The constants of the admission dial: time to live, slow start, and what is reported how often."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How bounds are set per engine, and when changes are reported."""

    ttl_seconds: float = 30.0
    """Seconds that bounds are valid in an engine without a new request. Basis: six periods of 5 s; a tightened limit
    outlives its reason by no more. Halved, doubled: not measured."""

    slow_start_seconds: float = 5.0
    """Seconds until a new replica admits the whole n*. Basis: the router sends all requests to the emptiest replica,
    and a longer start queues them there. Halved, doubled: not measured."""

    slow_start_share: float = 0.5
    """Share of n* that a new replica admits at once. Basis: a replica without requests gets no measurements for its
    model. Halved, with the engine's own rise after it, requests waited for half a minute: T4 99.7 instead of 99.9 %.
    Doubled: not measured."""

    rejections_again_seconds: float = 300.0
    """Seconds between two reports of rejected requests. It changes no decision."""

    reported_change: float = 0.2
    """Relative change of the limit that is reported. Basis: a smaller change is noise. It changes no decision."""

    reported_load: float = 0.5
    """Share of the limit that must be running for a fall to be reported. Basis: a fall that stays far above the running
    requests affects none. It changes no decision."""

    report_every_seconds: float = 15.0
    """Seconds between two reports of a changed limit. It changes no decision."""
