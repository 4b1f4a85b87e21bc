"""The state that decide() carries from one call to the next."""

from dataclasses import dataclass, field

from sluice_operator.autoscaler.values import ColdStart, FleetDelta, Lengths, PodTotals, Tally
from sluice_perfmodel.arrival_stats import ArrivalStats


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """The state that decide() carries from one call to the next; bounded. Opaque to all other code."""

    started_at: float | None = None  # first call after a (re)start: no scale-down until a full window has passed
    pods: tuple[PodTotals, ...] = ()
    deltas: tuple[FleetDelta, ...] = ()  # the window, oldest first
    lengths: Lengths = field(default_factory=Lengths)
    kept: Tally = field(default_factory=Tally)
    slots: tuple[tuple[int, float], ...] = ()  # (index of the time slot, requests that arrived in it), oldest first
    before: ArrivalStats = field(
        default_factory=ArrivalStats
    )  # arrival statistics from before this process, from the status
    starts: tuple[tuple[str, ColdStart], ...] = ()  # (pod, duration of its start), newest last
    learned: tuple[str, ...] | None = None  # present pods whose start is or was in `starts`; None: first call
    confidence: float = 1.0  # model confidence: 1 as long as measurements agree
    confidence_at: float = 0.0  # when the confidence last changed
    unevenness: float = 1.0  # split of requests in flight over replicas: 1 random, near 0 even
    uneven_at: float = 0.0  # when `unevenness` was last updated
    scrape_gap: float | None = None  # smoothed seconds between two scrapes of one pod
    wanted: tuple[tuple[float, int], ...] = ()  # (monotonic seconds, largest wanted count), in coarse slots
    ready: int = 0  # pods ready at the last call
    settled_at: float = 0.0  # when that number last changed: older measurements are of another fleet
    short_since: float | None = None  # since when the fleet lacks replicas with none starting; None: it does not
    no_down_until: float = 0.0  # a counter reset hides load for one window
    idle_since: float | None = None  # when the whole fleet became idle; None: it is not, or it is not known
    down_at: float | None = None  # the last scale-down
    next_scale_in_candidate: str | None = (
        None  # `Decision.next_scale_in_candidate`: fixed until the pod is removed or needed again
    )
    last_set: int | None = None  # the count that was set, once it was observed in force
    advised: int | None = None  # mode Advise's newest advice, from which it continues
    said: tuple[int, int] | None = None  # (before, after) of the newest sentence about replicas: reported once
    limits: tuple[tuple[str, int], ...] = field(default=())  # pod → last concurrency_max that was set
    limit_said: tuple[float, int] | None = None  # (when, concurrency) that the next admission sentence starts from
    refused_said_at: float | None = None  # when rejections were last reported; None: never
    limit_fell: bool = False  # the newest such sentence was about a fall: only then is a rise reported
