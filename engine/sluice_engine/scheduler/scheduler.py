"""Iteration-level batching: each step hands tokens to requests until their `computed` catches up with `known`.

Order within a step: one token for each decoding request, so that no stream stalls behind a prompt; then prompts that can
meet their TTFT deadline, in the order of the policy, running and waiting ones; then late ones. Without free blocks, the
last running request is preempted (one per step; its full blocks stay cached) and resumes in its turn, when its whole
sequence and a margin fit.

The `Scheduler` owns the `SchedulerState` and is its public face. A step is planned (`planner`) and settled (`settle`);
requests move between the queue, the running ones and the end (`transitions`). No torch, no clock: time is an argument.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.load_window import Occupancy
from sluice_engine.kvcache.block_pool import BlockPool
from sluice_engine.request import Request
from sluice_engine.scheduler import transitions
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.drafting import add_drafts
from sluice_engine.scheduler.load_shedding.exemption import exempt_overdue
from sluice_engine.scheduler.load_shedding.rejection import (
    Rejection,
    check_possible,
    forecast_queue,
    reject_or_evict,
    reject_unreachable,
    reject_while_draining,
    weight_of,
)
from sluice_engine.scheduler.load_shedding.shadow_arrivals import observe_arrival
from sluice_engine.scheduler.lookahead import book_ahead, can_overlap, room_ahead, step_mode
from sluice_engine.scheduler.plan import Outcome, Plan, StepMode
from sluice_engine.scheduler.planner import StepPlanner
from sluice_engine.scheduler.policies.service_order import estimate_prefill
from sluice_engine.scheduler.prefill_budget import prefill_budget
from sluice_engine.scheduler.settle import StepSettler
from sluice_engine.scheduler.state import SchedulerState, StepInFlight
from sluice_engine.scheduler.step_draft import StepDraft
from sluice_engine.scheduler.waiting_queue import WaitingQueue
from sluice_engine.speculation.controller import Speculation
from sluice_perfmodel.shadow_queues import ShadowQueues
from sluice_perfmodel.step_time import StepTimeModel


class Scheduler:
    """Submit and cancel requests; plan a step, run it, settle it. `state` is what the rules read and change."""

    def __init__(self, config: SchedulerConfig, limits: LimitController) -> None:
        self.state = SchedulerState(config, limits)

    # --- requests ----------------------------------------------------------------------------------------------

    def submit(self, request: Request, samples: Sequence[Request] = ()) -> Rejection | None:
        """Queue a request and further samples of its prompt. Returns the rejection of the request itself, or of a waiting
        one that is evicted for it. Raises ValueError for a request that could never run."""
        state, group = self.state, (request, *samples)
        known = next((each.request_id for each in group if each.request_id in state.requests), None)
        if known is not None:
            raise ValueError(f"request {known} already exists")
        check_possible(request, state.config)
        weight = weight_of(state, request, len(group))
        rejection = reject_while_draining(state, request)
        if rejection is not None:
            return rejection
        state.tables.hash_known(request)
        for number, each in enumerate(group):
            each.order = state.arrivals + number
            each.hashes = list(request.hashes)
        estimate = estimate_prefill(state, request)
        observe_arrival(state, request, estimate)
        exempt_overdue(state, state.now(request))
        forecast = forecast_queue(state, request, estimate)
        rejection = reject_unreachable(request, forecast) or reject_or_evict(state, request, weight, forecast.in_time)
        if rejection is not None:
            if rejection.request_id == request.request_id:
                return rejection
            transitions.evict(state, state.requests[rejection.request_id])
        for other in forecast.demoted:
            if other.request_id in state.requests:
                state.waiting.demote(other)
        for each in group:
            transitions.register(state, each)
        state.waiting.push(request, estimate, late=not forecast.in_time)
        state.waiting.evictable.add(request.request_id, (request.priority, forecast.in_time), request.tenant, weight)
        state.sample_groups.attach(request, samples)
        return rejection

    def cancel(self, request_id: str) -> bool:
        """End a request now; its blocks are free as soon as no step writes them. Returns whether it existed."""
        return transitions.cancel(self.state, request_id)

    def drain(self) -> None:
        """Reject all requests from now on; those that were accepted finish."""
        self.state.draining = True

    # --- one step ----------------------------------------------------------------------------------------------

    def plan(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step, or None when there is nothing to compute. Blocks are taken here, tokens counted at settle."""
        state = self.state
        state.model, state.clock = model, now
        while True:
            draft = StepDraft(step_mode(state))
            planner = StepPlanner(state, draft, now)
            planner.decodes()
            budget = prefill_budget(state, draft)
            planner.prompts(budget)
            if draft.rows and draft.mode is StepMode.DRAFTING:
                add_drafts(state, draft, budget.tokens)
            if draft.rows:
                return self._planned(planner, draft)
            if draft.preempted is None and not transitions.preempt_idle(state):
                return None
            # The preempted request only shared its blocks, which freed none: preempt the next one.

    def plan_ahead(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step while the last one that was planned still runs, whose tokens it names PENDING. None where that has
        to be settled first: there is no room without a preemption, the rules of `can_overlap` forbid it, or there is
        nothing to compute without its results."""
        state = self.state
        in_flight, mode = state.in_flight, step_mode(state)
        if in_flight is None or not can_overlap(state, in_flight, mode):
            return None
        book_ahead(state, in_flight.plan)
        if not room_ahead(state):
            return None
        state.model = model
        draft = StepDraft(mode, ahead=True, filled_before=in_flight.draft.filling)
        planner = StepPlanner(state, draft, now)
        planner.decodes()
        planner.prompts(prefill_budget(state, draft))
        return self._planned(planner, draft) if draft.rows else None

    def settle(
        self,
        plan: Plan,
        sampled: Sequence[int],
        now: float,
        errors: Mapping[str, str] = MappingProxyType({}),
        accepted: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Outcome]:
        """Book what a step computed. `sampled` has one token per sampling row, in order, and `accepted` by request how
        many draft tokens precede it; a request named in `errors` ends with that message, its token is ignored."""
        state = self.state
        state.tables.settled, state.clock = plan.step, now
        if state.in_flight is not None and state.in_flight.plan.step == plan.step:
            state.in_flight = None
        settler = StepSettler(state, now)
        settler.step(plan, sampled, errors, accepted)
        return settler.outcomes

    def check(self) -> None:
        """Raise RuntimeError unless a recount from the block tables and the queue agrees. Call between steps."""
        state = self.state
        waiting = list(state.waiting)
        aside = [*state.sample_groups, *state.preempted_steered.values()]
        state.tables.check(waiting + aside)
        state.swap.check(waiting + aside)
        if len(state.requests) != len(state.running) + len(state.tables.finishing) + len(waiting) + len(aside):
            raise RuntimeError("a request is neither running nor waiting")
        if state.waiting.tokens != sum(len(request.known) for request in waiting):
            raise RuntimeError("the queue's tokens do not add up")

    def _planned(self, planner: StepPlanner, draft: StepDraft) -> Plan:
        state = self.state
        state.tables.planned += 1
        plan = planner.plan(state.tables.planned)
        state.in_flight = StepInFlight(plan, draft)
        return plan

    # --- what others read --------------------------------------------------------------------------------------

    @property
    def config(self) -> SchedulerConfig:
        """As given."""
        return self.state.config

    @property
    def requests(self) -> Mapping[str, Request]:
        """All unfinished requests, by id."""
        return self.state.requests

    @property
    def running(self) -> Sequence[Request]:
        """Running requests; the last one is preempted first."""
        return self.state.running

    @property
    def waiting(self) -> WaitingQueue:
        """The queue."""
        return self.state.waiting

    @property
    def pool(self) -> BlockPool:
        """The KV cache's blocks."""
        return self.state.pool

    @property
    def speculation(self) -> Speculation:
        """Counts and costs of draft tokens."""
        return self.state.speculation

    @property
    def shadow(self) -> ShadowQueues:
        """The shadow queues, with their counters so far."""
        return self.state.shadow.queues

    @property
    def draining(self) -> bool:
        """Whether all new requests are rejected."""
        return self.state.draining

    @property
    def host_blocks_held(self) -> int:
        """Blocks of host memory with content."""
        return self.state.config.host_blocks - self.state.swap.free

    @property
    def preemptions(self) -> int:
        """So far."""
        return self.state.preemptions

    @property
    def swaps(self) -> int:
        """Preemptions so far whose blocks were copied to host memory."""
        return self.state.swaps

    @property
    def tokens_in_flight(self) -> int:
        """Known tokens of all waiting and running requests."""
        return self.state.tokens_in_flight

    @property
    def occupancy(self) -> Occupancy:
        """What runs and waits at this instant, for the concurrency limit."""
        state = self.state
        return Occupancy(
            cache=state.config,
            running=state.running,
            waiting=len(state.waiting),
            blocks_held=state.pool.held,
            mean_output=state.mean_output,
            mean_prompt=state.mean_prompt,
        )
