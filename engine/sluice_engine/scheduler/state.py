"""The state of a scheduler: what the rules of planning, settling and load shedding read and change.

Data only. `scheduler.Scheduler` owns it; each rule is a function of a `SchedulerState` in the module of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.shadow_observer import ShadowObserver
from sluice_engine.control.tail_correction import TailCorrection
from sluice_engine.kvcache.block_pool import BlockPool
from sluice_engine.kvcache.block_tables import BlockTables
from sluice_engine.kvcache.host_swap import HostSwap
from sluice_engine.request import Request
from sluice_engine.scheduler.admission.check import AdmissionCheck
from sluice_engine.scheduler.admission.output_lengths import OutputLengths
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.plan import Plan
from sluice_engine.scheduler.policies import POLICIES, Policy
from sluice_engine.scheduler.policies.priority import preemption_key
from sluice_engine.scheduler.policies.tenants import TenantCounters
from sluice_engine.scheduler.sample_groups import SampleGroups
from sluice_engine.scheduler.step_draft import StepDraft
from sluice_engine.scheduler.waiting_queue import WaitingQueue
from sluice_engine.speculation.controller import Speculation
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel


class StepInFlight(NamedTuple):
    """The step that was planned last and is not yet settled."""

    plan: Plan
    draft: StepDraft


@dataclass(slots=True, eq=False)
class SchedulerState:
    """Requests, their blocks, the queue and what was measured. Times are seconds of the caller's clock."""

    config: SchedulerConfig
    limits: LimitController
    policy: Policy = field(init=False)

    requests: dict[str, Request] = field(default_factory=dict)  # by id, in any state but finished
    tables: BlockTables = field(init=False)
    running: list[Request] = field(init=False)  # of `tables`; the last one is preempted first
    pool: BlockPool = field(init=False)  # of `tables`
    swap: HostSwap = field(init=False)
    waiting: WaitingQueue = field(init=False)
    sample_groups: SampleGroups = field(default_factory=SampleGroups)
    preempted_steered: dict[str, Request] = field(default_factory=dict)  # while they await input; in no queue

    admission: AdmissionCheck = field(init=False)
    shadow: ShadowObserver = field(default_factory=ShadowObserver)
    speculation: Speculation = field(init=False)
    counters: TenantCounters = field(default_factory=TenantCounters)
    lengths: OutputLengths = field(default_factory=OutputLengths)
    correction: TailCorrection = field(default_factory=TailCorrection)
    overshoot: TailCorrection = field(default_factory=TailCorrection)  # of the deadline, in steps with a cut chunk

    model: StepTimeModel | None = None  # as of the last plan
    clock: float = -math.inf  # of the last plan or settling
    in_flight: StepInFlight | None = None
    booked_ahead: int = 0  # the last step whose effect was booked before it had ended
    draining: bool = False

    exemptions: float = 0.0  # late requests that may be served out of their turn now
    arrivals: int = 0  # requests so far
    preemptions: int = 0  # so far
    swaps: int = 0  # of these preemptions, with a copy to host memory
    residence: float | None = None  # mean seconds that a request runs, smoothed
    finished: int = 0  # requests that ended with a whole output, so far
    ended_tokens: int = 0  # output tokens of all requests that ended, cancelled ones included
    mean_output: float | None = None  # mean output tokens of finished requests, smoothed
    mean_prompt: float | None = None  # mean prompt tokens that they had to compute, smoothed

    def __post_init__(self) -> None:
        """Builds the parts that depend on the configuration."""
        config = self.config
        self.policy = POLICIES[config.policy]
        self.tables = BlockTables(config, preemption_key)
        self.running, self.pool = self.tables.running, self.tables.pool
        self.swap = HostSwap(config)
        self.waiting = WaitingQueue(self.policy, self.counters)
        self.admission = AdmissionCheck(config, self.limits, self.tables, self.lengths)
        self.speculation = Speculation(config.speculation)

    @property
    def places(self) -> int:
        """Requests that may run at once."""
        return min(self.limits.concurrency, self.config.max_num_seqs)

    @property
    def next_step(self) -> int:
        """The number of the step that is planned next."""
        return self.tables.planned + 1

    @property
    def fitted_model(self) -> StepTimeModel | None:
        """The step-time model, once it has seen enough steps to be used."""
        return self.model if self.model is not None and self.model.steps >= PERFMODEL.limit.least_model_steps else None

    @property
    def pending_dependencies(self) -> Sequence[tuple[str, str]]:
        """`Plan.dependencies` of the step in flight."""
        return () if self.in_flight is None else self.in_flight.plan.dependencies

    @property
    def expected_residence(self) -> float:
        """Mean seconds that a request runs; the TTFT target while none has finished."""
        return self.limits.current.ttft_target if self.residence is None else self.residence

    @property
    def tokens_in_flight(self) -> int:
        """Known tokens of all waiting and running requests."""
        return self.waiting.tokens + sum(len(request.known) for request in self.running)

    def now(self, newcomer: Request) -> float:
        """The later of the clock and the newcomer's arrival, which another process may have stamped."""
        return max(self.clock, newcomer.arrived_at)

    def is_complete(self, request: Request) -> bool:
        """Whether the request has all the tokens that it may have."""
        return request.generated >= request.max_tokens or len(request.known) >= self.config.max_model_length

    def itl_target(self, request: Request) -> float:
        """The request's inter-token target, seconds; the engine's where it has none of its own."""
        return self.limits.current.itl_target if request.itl_target is None else request.itl_target
