"""A deployment in virtual time: arrivals, routing, cold starts, deaths and a law's decisions, ours or a peer's.

Nothing here reads a clock; what is random is drawn from the settings' seed: the same trace, spec and settings give
the same result.
"""

import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf

from sluice_engine.admission import Bounds
from sluice_engine.scheduler import SchedulerConfig
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.floors import allowed
from sluice_operator.decide.values import Decision, Observed
from sluice_sim.laws.law import Law, engines_under
from sluice_sim.laws.ours import OURS
from sluice_sim.pods import Pod, started_engine
from sluice_sim.record import Record
from sluice_sim.routing import Router
from sluice_sim.run import Life, Moment, Run, Said
from sluice_sim.settings import Chance, Settings
from sluice_sim.traces import Arrival
from sluice_sim.visit import Visit


class Fleet:
    """The simulated deployment. `settings.begin` replicas are ready when the trace begins."""

    def __init__(self, spec: LLMDeploymentSpec, settings: Settings, law: Law = OURS) -> None:
        self.spec, self.settings, self._law = engines_under(law, spec), settings, law
        blocks = max(1, settings.kv_tokens // settings.block_size)
        self._config = SchedulerConfig(
            num_blocks=blocks,
            block_size=settings.block_size,
            max_num_seqs=spec.engine.scheduling.max_num_seqs,
            policy=spec.engine.scheduling.policy,
            max_model_length=min(settings.max_model_length, blocks * settings.block_size),
            late_last=law.admits,  # a door that sorts is part of admission (laws/law.py)
        )
        self._truth = settings.truth
        self._memory = law.initial()
        self._chance, self._router = Chance(settings), Router(settings.routing)
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
    def records(self) -> Sequence[Record]:
        """All who came since the beginning, or since it was resumed."""
        return self._run.records

    def run(self, arrivals: Iterable[Arrival], progress: Callable[[float], None] = lambda _: None) -> Run:
        """Replay the trace, in order of time, to the end of its last request. `progress` is told the virtual time after
        each decision: who arrives then or later has not come yet."""
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
        run.lives += [Life(pod.name, pod.created_at, now) for pod in self._pods]
        return run

    def saved(self) -> bytes:
        """The fleet as it stands, without what came of the run so far: for `resumed`. Coarse engines only."""
        run, self._run = self._run, Run(records=[], mode=self._run.mode)
        try:
            return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        finally:
            self._run = run

    def _pass(self, now: float) -> None:
        """Everything that happens up to now: steps, readiness, deaths, drained pods leaving."""
        self._events(now)
        for pod in self._pods:
            if pod.engine is not None:
                pod.engine.run_until(now)
        for pod in [one for one in self._pods if one.leaving and not one.requests]:
            self._pods.remove(pod)
            self._run.lives.append(Life(pod.name, pod.created_at, now))
            self._router.gone(pod.name)
        self._plan_events()  # one that was still loading takes its next event along

    def _events(self, now: float) -> None:
        """Pods that become ready or die, in order of time."""
        while self._next_event <= now:
            pod = min(self._pods, key=lambda one: one.next_event)
            at = pod.next_event
            if pod.engine is None:
                pod.engine = started_engine(
                    self.settings.mode, self._truth, self._config, self._started_bounds(), at, self.settings.profile
                )
                after = self._chance.failure(pod.name) if pod.starts == 1 else None
                pod.fails_at = inf if after is None else at + after
            else:
                self._die(pod, at)
            self._plan_events()

    def _plan_events(self) -> None:
        self._next_event = min((pod.next_event for pod in self._pods), default=inf)

    def _die(self, pod: Pod, now: float) -> None:
        """Answers that had begun are broken; the gateway offers the others to the replicas that are left."""
        if pod.engine is not None:
            pod.engine.run_until(now)
        lost = pod.die(now, self._chance)
        self._run.failures += 1
        self._router.gone(pod.name)
        for visit in lost:
            if visit.record.first_at is not None:
                visit.record.failed = True
            else:
                self._offer(visit, now)

    def _arrive(self, number: int, one: Arrival) -> None:
        """One that the context has no room for is refused by the HTTP side before anything counts it."""
        self._events(one.at)
        served = one.within(self._config.max_model_length)
        output = one.output if served is None else served.output
        record = Record(one.at, one.prompt, output, priority=one.priority, tenant=one.tenant, refused=served is None)
        self._run.records.append(record)
        if served is not None:
            self._offer(Visit(number, served, record), one.at)

    def _offer(self, visit: Visit, now: float) -> None:
        """The gateway tries each ready replica once, in its policy's order; a request that is displaced by this one goes
        on to those that it was not offered to yet."""
        homeless: Visit | None = visit
        while homeless is not None:
            offered, homeless = homeless, self._place(homeless, now)
            if homeless is offered:
                offered.record.refused = True
                return

    def _place(self, visit: Visit, now: float) -> Visit | None:
        """Who has no place when a replica has taken this request, or none has; None where everybody has one."""
        ready = [pod for pod in self._pods if pod.engine is not None and not pod.leaving]
        if self._router.needs_load:
            for pod in ready:
                if pod.engine is not None:
                    pod.engine.run_until(now, lazily=True)
        for pod in self._router.order(ready, visit.arrival):
            if pod.engine is None or pod.name in visit.tried:
                continue
            visit.tried.add(pod.name)
            pod.engine.run_until(now)
            visit.load = self._router.load(visit.arrival, pod)
            refused = pod.engine.submit(visit)
            if refused is not visit:
                self._router.sent(visit.arrival, pod.name)
                return refused
        return visit

    def _add(self, now: float, ready_at: float | None = None) -> None:
        self._made += 1
        name = f"replica-{self._made}"
        if ready_at is None:
            ready_at = now + self._chance.cold_start(name, 1)
        self._pods.append(Pod(name, now, ready_at))
        self._plan_events()

    def _started_bounds(self) -> Bounds:
        """What the operator's pod template starts an engine with: spec.admission and spec.slo."""
        concurrency, scheduling = self.spec.admission.concurrency, self.spec.engine.scheduling
        most = min(concurrency.max, scheduling.max_num_seqs)
        return Bounds(
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
        self._router.retiring = decision.retiring
        run.moments.append(self._moment(now))
        run.said += [Said(now, reason) for reason in decision.reasons]
        run.replicas.append((now, len(self._pods)))
        if decision.concurrency is not None:
            run.limits.append((now, decision.concurrency))
        if decision.replicas is not None:
            self._scale(now, decision.replicas, decision.victims)
        run.wanted.append((now, self._wanted))

    def _limit(self, decision: Decision, now: float) -> None:
        """PATCH /limits."""
        engines = {pod.name: pod.engine for pod in self._pods if pod.engine is not None}
        for name, bounds in decision.bounds:
            if name in engines:
                changes = {
                    "concurrency_min": bounds.concurrency_min,
                    "concurrency_max": bounds.concurrency_max,
                    "max_queue": bounds.max_queue,
                    "kv_watermark": bounds.kv_watermark,
                    "itl_target": bounds.itl_target,
                    "ttft_target": bounds.ttft_target,
                }
                engines[name].limits.patch(changes, bounds.ttl, now)

    def _moment(self, now: float) -> Moment:
        seen = [pod.engine.gauges() for pod in self._pods if pod.engine is not None]
        blocks = sum(one.blocks for one in seen)
        return Moment(
            at=now,
            pods=len(self._pods),
            ready=len(seen),
            running=sum(one.running for one in seen),
            waiting=sum(one.waiting for one in seen),
            kv_share=sum(one.held for one in seen) / blocks if blocks else 0.0,
        )

    def _scale(self, now: float, replicas: int, victims: Sequence[str]) -> None:
        """What the Deployment's controller does: create what is missing, drain the victims first of what is over."""
        staying = [pod for pod in self._pods if not pod.leaving]
        order = {name: place for place, name in enumerate(victims)}
        staying.sort(key=lambda pod: order.get(pod.name, len(order)))
        for pod in staying[: max(0, len(staying) - replicas)]:
            pod.leaving = True
        for _ in range(replicas - len(staying)):
            self._add(now)
        self._wanted = replicas


def _first_count(spec: LLMDeploymentSpec, settings: Settings) -> int:
    """What a Deployment that had nothing to do until now has, where no front door holds requests; schedules included."""
    if spec.scaling.mode not in ("Auto", "Advise"):
        return spec.replicas
    return allowed(spec, Observed(pods=(), replicas=None, wall=settings.wall), lead=0.0).low


def resumed(saved: bytes, law: Law) -> Fleet:
    """A fleet that goes on from where it was saved, under a law that reads the memory of the one before: `run` takes the
    arrivals from the saved moment on, whose times still count from the first beginning."""
    fleet: Fleet = pickle.loads(saved)  # noqa: S301 - what this process wrote a moment ago
    fleet._law = law
    return fleet
