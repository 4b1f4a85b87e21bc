"""The nouns of a decision: what was observed, what is remembered, what was decided and why.

Everything here is what the contract's counters, gauges and bucketed histograms can say, per pod: never a true
length, never the future. The cluster, `sluice up` and the simulator all fill in these same values.
"""

from dataclasses import dataclass, field
from typing import Literal

from sluice_law.nature import Nature
from sluice_law.steptime import StepTimeModel

PodPhase = Literal["unschedulable", "scheduling", "pulling", "loading", "ready", "draining", "failed"]
Dial = Literal["replicas", "admission"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram as scraped: cumulative counts per upper bound, the last bound +Inf."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    sum: float = 0.0

    @property
    def count(self) -> float:
        """How many observations."""
        return self.counts[-1] if self.counts else 0.0


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One scrape of one engine's /metrics, parsed. Counters are totals since the engine started."""

    running: float
    waiting: float
    tokens_in_flight: float
    kv_occupancy: float  # held / total, 0..1
    kv_blocks: float  # total
    block_size: float  # tokens
    concurrency: float  # the limit in force
    concurrency_min: float
    concurrency_max: float
    queue_limit: float
    arrived_total: float
    finished_total: float  # ended with stop or length
    rejected_total: float
    slo_met_total: float
    slo_missed_total: float
    prompt_tokens_total: float
    cached_prompt_tokens_total: float
    generated_tokens_total: float
    kv_block_seconds_total: float
    busy_seconds_total: float
    preemptions_total: float
    ttft: Histogram
    itl: Histogram
    step_model: StepTimeModel | None
    load_seconds: tuple[tuple[str, float], ...] = ()  # (phase, seconds)
    failed_total: float = 0.0  # ended by our fault
    offered_again_total: float = 0.0  # that another replica had refused


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds from creation to ready, by phase; measured on one pod."""

    schedule: float
    pull: float
    load: float
    warm: float
    total: float


@dataclass(frozen=True, slots=True)
class PodView:
    """One engine pod: where it is in its life, and its newest good scrape."""

    name: str
    phase: PodPhase
    since: float  # monotonic seconds when it entered this phase, as far as we saw
    sample: EngineSample | None = None
    sample_at: float | None = None  # monotonic seconds of that scrape
    message: str = ""  # the scheduler's or kubelet's own words
    start_age: float | None = None  # seconds since this start of it began; None: since it entered this phase
    cold_start: ColdStart | None = None  # how long its start took, once it is ready


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything decide() may look at besides the spec and its memory."""

    pods: tuple[PodView, ...] = ()
    replicas: int | None = None  # what the Deployment asks for now; None: it does not exist yet
    held: int | None = None  # requests that a front door holds for want of a replica; None: no such front door
    wall: float | None = None  # seconds since 1970, for schedules; None: no calendar is known


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds and targets for one engine: the body of PATCH /limits, in seconds."""

    concurrency_min: int
    concurrency_max: int
    max_queue: int
    kv_watermark: float
    itl_target: float
    ttft_target: float
    ttl: float


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a dial moved, or stayed. `numbers` are what was used; `sentence` is what a person reads."""

    dial: Dial
    before: int
    after: int
    binding: str  # CamelCase: InterTokenLatency, KVOccupancy, TimeToFirstToken, Queue, Idle, MinReplicas, ...
    sentence: str
    numbers: tuple[tuple[str, float], ...] = ()
    advised: bool = False  # said, not carried out: scaling.mode is Advise


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. `replicas` None: leave the Deployment's count alone (another owner, or nothing is known)."""

    replicas: int | None
    desired: int  # what the law wants, acted upon or only advised
    bounds: tuple[tuple[str, Bounds], ...] = ()  # pod name → bounds; a pod left out keeps its last until its TTL
    victims: tuple[str, ...] = ()  # pods in the order in which they should leave
    retiring: str | None = None  # who leaves next if the load stays as it is: routers begin no conversation there
    reasons: tuple[Reason, ...] = ()  # only dials that moved
    kv_occupancy: float | None = None  # fleet figures for the status
    ttft: float | None = None  # seconds, at the attainment percentile, over the window
    itl: float | None = None
    attainment: float | None = None  # share of good requests in the window, 0..1
    concurrency: int | None = None
    cold_start: ColdStart | None = None  # the usual one, phase by phase
    retry_after: float | None = None  # seconds until capacity that is on its way should serve; None: nothing is
    forecast: "Outlook | None" = None
    metrics: Literal["Fresh", "Partial", "Stale", "NoTraffic", "NoPods"] = "NoPods"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a successor would have to learn again: how the load moves, how long requests are, how far the model is
    believed. The status carries it over a restart."""

    rate: float  # requests per second, now
    planned: float  # requests per second, when a replica ordered now is ready
    dispersion: float
    volatility: float
    output_tokens: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class PodTotals:
    """One pod's counters at its newest good scrape: what the next scrape is subtracted from."""

    name: str
    at: float  # monotonic seconds of the scrape
    counters: tuple[float, ...]  # in the order of `windows.COUNTERS`
    running: float
    ttft: tuple[float, ...]  # cumulative counts per bucket
    itl: tuple[float, ...]
    spared: float = 0.0  # prompt tokens that its cache spared, forgetting like `Lengths`: how warm it is


@dataclass(frozen=True, slots=True)
class Tick:
    """What the whole fleet did in about a second: sums of the pods' differences."""

    at: float
    seconds: float
    counters: tuple[float, ...]
    block_seconds: float  # pool blocks × seconds that those differences span
    ttft: tuple[float, ...] = ()
    itl: tuple[float, ...] = ()
    overdue: float = 0.0  # first tokens later than the last bucket and than the target of that moment


@dataclass(frozen=True, slots=True)
class Lengths:
    """Sums that forget with a time constant: how long requests are, over the last minutes."""

    at: float = 0.0
    finished: float = 0.0
    started: float = 0.0
    generated: float = 0.0
    prompt: float = 0.0
    cached: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests by what became of them."""

    met: float
    late: float  # or failed
    refused: float

    @property
    def missed(self) -> float:
        """All that were not good."""
        return self.late + max(0.0, self.refused)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums that forget within a day: requests that were good, that were late or failed, and that all replicas refused."""

    at: float = 0.0
    met: float = 0.0
    late: float = 0.0
    refused: float = 0.0

    @property
    def missed(self) -> float:
        """All that were not good."""
        return self.late + self.refused


@dataclass(frozen=True, slots=True)
class Memory:
    """What decide() carries from one call to the next; bounded. Filled by `decide`, opaque to everyone else."""

    started_at: float | None = None  # first call after a (re)start: no scale-down until a full window has passed
    pods: tuple[PodTotals, ...] = ()
    ticks: tuple[Tick, ...] = ()  # the window, oldest first
    lengths: Lengths = Lengths()
    kept: Tally = Tally()
    slots: tuple[tuple[int, float], ...] = ()  # (number of the slot of time, requests that arrived in it), oldest first
    before: Nature = field(default_factory=Nature)  # how the load moved before this process, from the status
    starts: tuple[tuple[str, ColdStart], ...] = ()  # (pod, how long it took), newest last
    learned: tuple[str, ...] | None = None  # pods that are there and whose start is or was among them; None: first look
    trust: float = 1.0  # in the model: 1 as long as reality agrees
    trust_at: float = 0.0  # when it last moved
    unevenness: float = 1.0  # how requests in flight are split over replicas: 1 by lot, near 0 evenly
    uneven_at: float = 0.0  # when that was last looked at
    scrape_gap: float | None = None  # smoothed seconds between two scrapes of one pod
    wanted: tuple[tuple[float, int], ...] = ()  # (monotonic seconds, most replicas the law wanted), in coarse slots
    ready: int = 0  # pods ready at the last call
    settled_at: float = 0.0  # when that number last changed: older evidence is of another fleet
    short_since: float | None = None  # since when replicas are missing of which none is on its way; None: it is not so
    no_down_until: float = 0.0  # a counter reset hides load for one window
    idle_since: float | None = None  # when the whole fleet became idle; None: it is not, or nobody knows
    down_at: float | None = None  # the last scale-down
    retiring: str | None = None  # `Decision.retiring`: named once, until it leaves or is needed after all
    last_set: int | None = None  # the count we asked for, once it was seen to be in force
    advised: int | None = None  # the count that Advise goes on from: its own newest advice, which nobody acts on here
    said: tuple[int, int] | None = None  # (before, after) of the newest sentence about replicas: said once
    limits: tuple[tuple[str, int], ...] = field(default=())  # pod → last concurrency_max we set
    limit_said: tuple[float, int] | None = (
        None  # (when, concurrency) that the next sentence about admission starts from
    )
    refused_said_at: float | None = None  # when refusals were last said; None: never
    limit_fell: bool = False  # the newest such sentence told of a fall: only then is a rise news
