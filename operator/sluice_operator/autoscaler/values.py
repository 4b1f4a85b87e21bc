"""The data types of a decision: observations, the decision and its reasons.

They hold only values that the contract's counters, gauges and bucketed histograms provide per pod: no true lengths and
no future. The cluster, `sluice up` and the simulator fill in the same types.
"""

from dataclasses import dataclass
from typing import Literal

from sluice_operator.autoscaler.budget.values import Budget, BudgetLimit, Want
from sluice_perfmodel.step_time import StepTimeModel

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
        """Number of observations."""
        return self.counts[-1] if self.counts else 0.0


@dataclass(frozen=True, slots=True)
class ShadowTotals:
    """What an engine's shadow queues have counted since its start (`sluice_perfmodel.shadow_queues`), in requests."""

    requests: float
    unreachable: float  # late even alone
    late: tuple[float, ...]  # per load of LOADS


@dataclass(frozen=True, slots=True)
class StartReport:
    """What a starting engine says about its model: the progress of the download or of the load that follows it, or why it
    cannot be fetched.
    """

    progress: str = ""  # a phrase such as "42 % of 16.1 GB, 3 min left"
    reason: str = ""  # one of contract.FETCH_REASONS, or of a model that cannot be served; "" without a fault
    message: str = ""  # with the reason
    loaded: str = ""  # a phrase such as "42 % of 16.1 GB at 2.1 GB/s, 5 s left"


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
    ttft: Histogram
    itl: Histogram
    step_model: StepTimeModel | None
    load_seconds: tuple[tuple[str, float], ...] = ()  # (phase, seconds)
    failed_total: float = 0.0  # ended by an error of the engine
    offered_again_total: float = 0.0  # that another replica had rejected before
    shadow: ShadowTotals | None = None  # None: the engine publishes none
    start: StartReport | None = None  # None: the engine neither fetches nor loads its model
    revision: str = ""  # of the model that it serves; "" for one that it did not fetch


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds from creation to ready, by phase; measured on one pod."""

    schedule: float
    pull: float
    load: float
    warm: float
    total: float
    fetch: float = 0.0  # the download of the model; 0 for one on a volume


@dataclass(frozen=True, slots=True)
class PodView:
    """One engine pod: its lifecycle phase and its newest good scrape."""

    name: str
    phase: PodPhase
    since: float  # monotonic seconds when it entered this phase, as far as observed
    sample: EngineSample | None = None
    sample_at: float | None = None  # monotonic seconds of that scrape
    message: str = ""  # message of the scheduler or the kubelet
    start_age: float | None = None  # seconds since this start began; None: since it entered this phase
    cold_start: ColdStart | None = None  # duration of its start, once it is ready


@dataclass(frozen=True, slots=True)
class Observed:
    """All inputs of decide() besides the spec and its state."""

    pods: tuple[PodView, ...] = ()
    replicas: int | None = None  # spec.replicas of the Deployment; None: it does not exist yet
    held: int | None = None  # requests that a gateway holds until a replica is ready; None: no gateway holds requests
    wall: float | None = None  # seconds since 1970, for schedules; None: no calendar time is known
    budget: Budget | None = None  # of accelerators, shared with other deployments; None: none applies


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
    """Why a dial moved or stayed. `numbers` are the inputs; `sentence` is the text for users."""

    dial: Dial
    before: int
    after: int
    binding: str  # CamelCase: RecentLoad, LastingLoad, Throughput, KVOccupancy, Idle, MinReplicas, ...
    sentence: str
    numbers: tuple[tuple[str, float], ...] = ()
    advised: bool = False  # only reported: scaling.mode is Advise


@dataclass(frozen=True, slots=True)
class ForecastStatus:
    """The load, and how well the replay has predicted."""

    rate: float  # requests per second, now
    growth: float  # factor by which the load grows until a replica ordered now is ready, 1 or more
    remembered: int  # replicas that the last quarter of an hour needed
    predicted: float | None  # share of the last hour's requests that are good by the replay, 0..1; None: no data
    attained: float | None  # share that was good in the same time
    model_error: float  # factor on the load by which the replay is corrected, 1 or more


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of one reconcile. `replicas` None: keep the Deployment's count (other owner or no data)."""

    replicas: int | None
    desired: int  # the law's result, set or only advised
    bounds: tuple[tuple[str, Bounds], ...] = ()  # pod name → bounds; a pod left out keeps its last until its TTL
    scale_in_candidates: tuple[str, ...] = ()  # scale-in candidates, in order of removal
    reasons: tuple[Reason, ...] = ()  # only for dials that moved
    kv_occupancy: float | None = None  # fleet figures for the status
    ttft: float | None = None  # seconds, at the attainment percentile, over the window
    itl: float | None = None
    attainment: float | None = None  # share of good requests in the window, 0..1
    concurrency: int | None = None
    cold_start: ColdStart | None = None  # the median one, phase by phase
    retry_after: float | None = None  # seconds until capacity that is starting should serve; None: none is starting
    forecast: ForecastStatus | None = None
    want: Want | None = None  # what the deployment asks of an accelerator budget; None: none applies
    budget: BudgetLimit | None = None  # what that budget leaves to it; None: it does not limit the count
    metrics: Literal["Fresh", "Partial", "Stale", "NoTraffic", "NoPods"] = "NoPods"
