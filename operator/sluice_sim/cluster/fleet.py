"""A deployment in virtual time: arrivals, routing, cold starts, pod failures and the decisions of a control law.

No code in this module reads a clock, and all randomness comes from the settings' seed. The same trace, spec and
settings give the same result.
"""

import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf

from sluice_engine.limits import LimitChanges, Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_gateway.routing import Router
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.replica_range import replica_range
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.cluster.replica import Pod, started_engine
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.routing import POLICY, prompt_of, replica_of
from sluice_sim.cluster.scenario import Chance, Settings
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.policies.policy import Law, engines_under
from sluice_sim.policies.sluice import OURS
from sluice_sim.results.run import DecisionReason, FleetSample, PodLifetime, Run
from sluice_sim.traces import Arrival


class Fleet:
    """The simulated deployment under one law. `settings.begin` replicas are ready when the trace begins."""

    def __init__(self, spec: LLMDeploymentSpec, settings: Settings, law: Law = OURS) -> None:
        self.spec, self.settings, self._law = engines_under(law, spec), settings, law
        blocks = max(1, settings.kv_tokens // settings.block_size)
        self._config = SchedulerConfig(
            num_blocks=blocks,
            block_size=settings.block_size,
            max_num_seqs=spec.engine.scheduling.max_num_seqs,
            policy=spec.engine.scheduling.policy,
            max_model_length=min(settings.max_model_length, blocks * settings.block_size),
            late_last=law.admits,  # queueing by deadline is part of admission (policies/policy.py)
        )
        self._memory = law.initial()
        self._chance, self._router = Chance(settings), Router(POLICY[settings.routing])
        self._pods: list[Pod] = []
        self._run = Run(records=[], mode=settings.mode)
        self._made = self._came = 0
        self._next_tick = 0.0
        self._next_event = inf
        self._wanted = _first_count(spec, settings) if settings.begin is None else settings.begin
        for _ in range(self._wanted):
            self._add(0.0, ready_at=0.0)
        self._events(0.0)

    @property
    def records(self) -> Sequence[RequestRecord]:
        """The requests that arrived since the beginning, or since the fleet was restored."""
        return self._run.records

    def run(self, arrivals: Iterable[Arrival], progress: Callable[[float], None] = lambda _: None) -> Run:
        """Replay the trace (in order of time) until its last request has ended.

        `progress` is called with the virtual time (s) after each decision; requests with that arrival time or a later
        one have not arrived yet."""
        run, now = self._run, self._next_tick
        for one in chain(arrivals, (None,)):
            while self._next_tick <= (inf if one is None else one.at):
                now = self._next_tick
                self._pass(now)
                self._decide(now)
                self._next_tick = now + self.settings.interval
                progress(now)
                if one is None and not any(pod.requests for pod in self._pods):
                    break
            if one is not None:
                self._arrive(self._came, one)
                self._came += 1
        run.seconds = now
        run.pod_lifetimes += [PodLifetime(pod.name, pod.created_at, now) for pod in self._pods]
        return run

    def snapshot(self) -> bytes:
        """The pickled fleet without the results of the run so far, as input of `restored`. Coarse engines only."""
        run, self._run = self._run, Run(records=[], mode=self._run.mode)
        try:
            return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        finally:
            self._run = run

    def _pass(self, now: float) -> None:
        """Simulate up to `now`: pods that become ready or fail, engine steps, and the removal of drained pods."""
        self._events(now)
        for pod in self._pods:
            if pod.engine is not None:
                pod.engine.run_until(now)
        for pod in [one for one in self._pods if one.leaving and not one.requests]:
            self._pods.remove(pod)
            self._run.pod_lifetimes.append(PodLifetime(pod.name, pod.created_at, now))
            self._router.caches.forget(pod.name)
        self._plan_events()  # a removed pod may have been loading, with an event of its own

    def _events(self, now: float) -> None:
        """Handle pods that become ready or fail up to `now`, in order of time."""
        while self._next_event <= now:
            pod = min(self._pods, key=lambda one: one.next_event)
            at = pod.next_event
            if pod.engine is None:
                pod.engine = started_engine(self.settings, self._config, self._base_limits(), at)
                after = self._chance.failure(pod.name) if pod.starts == 1 else None
                pod.fails_at = inf if after is None else at + after
            else:
                self._die(pod, at)
            self._plan_events()

    def _plan_events(self) -> None:
        self._next_event = min((pod.next_event for pod in self._pods), default=inf)

    def _die(self, pod: Pod, now: float) -> None:
        """A pod fails. Requests with a first token fail; the gateway offers the others to the remaining replicas."""
        if pod.engine is not None:
            pod.engine.run_until(now)
        lost = pod.die(now, self._chance)
        self._run.failures += 1
        self._router.caches.forget(pod.name)
        for request in lost:
            if request.record.first_at is not None:
                request.record.failed = True
            else:
                self._offer(request, now)

    def _arrive(self, number: int, one: Arrival) -> None:
        """A request arrives. The HTTP layer rejects one that exceeds the context before any engine counts it."""
        self._events(one.at)
        served = one.within(self._config.max_model_length)
        output = one.output if served is None else served.output
        record = RequestRecord(
            one.at, one.prompt, output, priority=one.priority, tenant=one.tenant, refused=served is None
        )
        self._run.records.append(record)
        if served is not None:
            self._offer(OfferedRequest(number, served, record), one.at)

    def _offer(self, request: OfferedRequest, now: float) -> None:
        """The gateway tries each ready replica once, in the order of its policy.

        A request that this one evicts is offered in turn to the replicas that it has not tried yet."""
        unplaced: OfferedRequest | None = request
        while unplaced is not None:
            offered, unplaced = unplaced, self._place(unplaced, now)
            if unplaced is offered:
                offered.record.refused = True
                return

    def _place(self, request: OfferedRequest, now: float) -> OfferedRequest | None:
        """Offer a request to the replicas in order.

        Returns the request that has no replica afterwards: one evicted by this request, or this request itself if all
        replicas reject it; None otherwise."""
        ready = {pod.name: pod for pod in self._pods if pod.engine is not None and not pod.leaving}
        if self._router.reads_load:
            for pod in ready.values():
                if pod.engine is not None:
                    pod.engine.run_until(now, lazily=True)
        prompt = prompt_of(request.arrival)
        replicas = [replica_of(pod, with_load=self._router.reads_load) for pod in ready.values()]
        for replica in self._router.order(replicas, prompt):
            engine = ready[replica.name].engine
            if engine is None or replica.name in request.offered_to:
                continue
            request.offered_to.add(replica.name)
            engine.run_until(now)
            request.prefill_tokens = round(self._router.uncached_tokens(replica.name, prompt))
            refused = engine.submit(request)
            if refused is not request:
                self._router.sent(replica, prompt)
                return refused
        return request

    def _add(self, now: float, ready_at: float | None = None) -> None:
        self._made += 1
        name = f"replica-{self._made}"
        if ready_at is None:
            ready_at = now + self._chance.cold_start(name, 1)
        self._pods.append(Pod(name, now, ready_at))
        self._plan_events()

    def _base_limits(self) -> Limits:
        """The base limits in the operator's pod template, from spec.admission and spec.slo."""
        concurrency, scheduling = self.spec.admission.concurrency, self.spec.engine.scheduling
        most = min(concurrency.max, scheduling.max_num_seqs)
        return Limits(
            concurrency_min=min(concurrency.min, most),
            concurrency_max=most,
            max_batched_tokens=scheduling.max_batched_tokens,
            itl_target=self.spec.slo.itl_milliseconds / 1000.0,
            ttft_target=self.spec.slo.ttft_milliseconds / 1000.0,
        )

    def _decide(self, now: float) -> None:
        run = self._run
        views = tuple(pod.view(now, self.settings, self._chance) for pod in self._pods)
        began = self.settings.wall
        observed = Observed(pods=views, replicas=self._wanted, wall=None if began is None else began + now)
        decision, self._memory = self._law.decide(self.spec, observed, self._memory, now)
        self._limit(decision, now)
        run.fleet_samples.append(self._fleet_sample(now))
        run.decisions += [DecisionReason(now, reason) for reason in decision.reasons]
        run.replicas.append((now, len(self._pods)))
        if decision.concurrency is not None:
            run.limits.append((now, decision.concurrency))
        if decision.replicas is not None:
            self._scale(now, decision.replicas, decision.scale_in_candidates)
        run.desired.append((now, self._wanted))

    def _limit(self, decision: Decision, now: float) -> None:
        """Apply the decision's bounds to the engines, as PATCH /limits does."""
        engines = {pod.name: pod.engine for pod in self._pods if pod.engine is not None}
        for name, bounds in decision.bounds:
            if name in engines:
                changes: LimitChanges = {
                    "concurrency_min": bounds.concurrency_min,
                    "concurrency_max": bounds.concurrency_max,
                    "max_queue": bounds.max_queue,
                    "kv_watermark": bounds.kv_watermark,
                    "itl_target": bounds.itl_target,
                    "ttft_target": bounds.ttft_target,
                }
                engines[name].limits.patch(changes, bounds.ttl, now)

    def _fleet_sample(self, now: float) -> FleetSample:
        seen = [pod.engine.state() for pod in self._pods if pod.engine is not None]
        blocks = sum(one.blocks for one in seen)
        return FleetSample(
            at=now,
            pods=len(self._pods),
            ready=len(seen),
            running=sum(one.running for one in seen),
            waiting=sum(one.waiting for one in seen),
            kv_share=sum(one.held for one in seen) / blocks if blocks else 0.0,
        )

    def _scale(self, now: float, replicas: int, scale_in_candidates: Sequence[str]) -> None:
        """Act as the Deployment's controller: create missing pods, or drain surplus pods.

        The decision's scale-in candidates are drained first."""
        staying = [pod for pod in self._pods if not pod.leaving]
        order = {name: place for place, name in enumerate(scale_in_candidates)}
        staying.sort(key=lambda pod: order.get(pod.name, len(order)))
        for pod in staying[: max(0, len(staying) - replicas)]:
            pod.leaving = True
        for _ in range(replicas - len(staying)):
            self._add(now)
        self._wanted = replicas


def _first_count(spec: LLMDeploymentSpec, settings: Settings) -> int:
    """Replicas of an idle Deployment without a gateway that holds requests; schedules count as floors."""
    if spec.scaling.mode not in ("Auto", "Advise"):
        return spec.replicas
    return replica_range(spec, Observed(pods=(), replicas=None, wall=settings.wall), lead=0.0).low


def restored(saved: bytes, law: Law) -> Fleet:
    """Restore a fleet from a snapshot under `law`, which must accept the memory of the previous law.

    `run` then takes the arrivals from the saved moment on; their times still count from the original beginning."""
    fleet: Fleet = pickle.loads(saved)  # noqa: S301 - this process wrote the bytes itself
    fleet._law = law
    return fleet
