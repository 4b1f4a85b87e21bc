"""A deployment in virtual time: arrivals, round-robin routing, cold starts and a law's decisions, ours or a peer's.

Nothing here reads a clock or draws a random number: the same trace, spec and profile give the same result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sluice_engine.admission import Bounds
from sluice_engine.scheduler import SchedulerConfig
from sluice_law.steptime import StepTimeModel
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.values import EngineSample, Observed, PodPhase, PodView, Reason
from sluice_operator.exposition import parse
from sluice_sim.engine import Record, SimEngine
from sluice_sim.laws.law import Law, engines_under
from sluice_sim.laws.ours import OURS
from sluice_sim.traces import Arrival

USUAL_MODEL_LENGTH: Final = 8192  # where the spec does not say: the engine would read it from the model


@dataclass(frozen=True, slots=True)
class Settings:
    """What the spec does not say. Seconds, tokens."""

    profile: StepTimeModel
    kv_tokens: int
    interval: float = 5.0  # between two scrapes and decisions
    cold_start: float = 60.0  # from the decision to ready
    block_size: int = 16
    max_model_length: int = USUAL_MODEL_LENGTH


@dataclass(slots=True)
class Pod:
    """One replica: loading until `ready_at`, draining once `leaving`."""

    name: str
    created_at: float
    ready_at: float
    engine: SimEngine | None = None
    leaving: bool = False
    left_at: float | None = None
    sample: EngineSample | None = None
    sampled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A decision's sentence and when it was made."""

    at: float
    reason: Reason


@dataclass(slots=True)
class Run:
    """What came of it."""

    records: list[Record]
    replicas: list[tuple[float, int]] = field(default_factory=list)  # (time, pods that exist) at each decision
    wanted: list[tuple[float, int]] = field(default_factory=list)  # (time, pods asked for) after each decision
    limits: list[tuple[float, int]] = field(default_factory=list)  # (time, the fleet's median limit in force)
    said: list[Said] = field(default_factory=list)
    replica_seconds: float = 0.0
    seconds: float = 0.0


class Fleet:
    """The simulated deployment. `minReplicas` (or spec.replicas, where that rules) are ready when the trace begins."""

    def __init__(self, spec: LLMDeploymentSpec, settings: Settings, law: Law = OURS) -> None:
        self.spec, self.settings, self._law = engines_under(law, spec), settings, law
        self._config = SchedulerConfig(
            num_blocks=max(1, settings.kv_tokens // settings.block_size),
            block_size=settings.block_size,
            max_num_seqs=spec.engine.scheduling.max_num_seqs,
            max_model_length=min(
                settings.max_model_length, settings.kv_tokens // settings.block_size * settings.block_size
            ),
        )
        self._memory = law.initial()
        self._pods: list[Pod] = []
        self._gone: list[Pod] = []
        self._made = self._turn = 0
        self._wanted = spec.scaling.min_replicas if spec.scaling.mode in ("Auto", "Advise") else spec.replicas
        for _ in range(self._wanted):
            self._add(0.0, ready_at=0.0)
        self._start_ready(0.0)

    def run(self, arrivals: Sequence[Arrival], progress: Callable[[float], None] = lambda _: None) -> Run:
        """Replay the trace to the end of its last request. `progress` is told the virtual time."""
        run = Run(records=[Record(one.at, one.prompt, one.output) for one in arrivals])
        next_tick, index, now = 0.0, 0, 0.0
        while index < len(arrivals) or self._busy():
            now = next_tick
            while index < len(arrivals) and arrivals[index].at < next_tick:
                self._arrive(index, run.records[index])
                index += 1
            for pod in self._pods:
                if pod.engine is not None:
                    pod.engine.run_until(now)
            self._settle_pods(now)
            self._decide(now, run)
            progress(now)
            next_tick = now + self.settings.interval
        run.seconds = now
        run.replica_seconds = sum(
            (now if pod.left_at is None else pod.left_at) - pod.created_at for pod in (*self._pods, *self._gone)
        )
        return run

    def _busy(self) -> bool:
        return any(pod.engine is not None and pod.engine.busy for pod in self._pods)

    def _arrive(self, number: int, record: Record) -> None:
        self._start_ready(record.arrived_at)
        ready = [pod.engine for pod in self._pods if pod.engine is not None and not pod.leaving]
        if not ready:
            record.refused = True
            return
        engine = ready[self._turn % len(ready)]
        self._turn += 1
        engine.run_until(record.arrived_at)
        engine.submit(f"r{number}", number, record)

    def _add(self, now: float, ready_at: float) -> None:
        self._made += 1
        self._pods.append(Pod(f"replica-{self._made}", now, ready_at))

    def _start_ready(self, now: float) -> None:
        for pod in self._pods:
            if pod.engine is None and pod.ready_at <= now:
                pod.engine = SimEngine(self.settings.profile, self._config, self._started_bounds(), pod.ready_at)

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

    def _settle_pods(self, now: float) -> None:
        """Loads end, drained pods leave."""
        self._start_ready(now)
        for pod in list(self._pods):
            if pod.leaving and (pod.engine is None or not pod.engine.busy):
                pod.left_at = now
                self._pods.remove(pod)
                self._gone.append(pod)

    def _decide(self, now: float, run: Run) -> None:
        views = tuple(self._view(pod, now) for pod in self._pods)
        observed = Observed(pods=views, replicas=self._wanted)
        decision, self._memory = self._law.decide(self.spec, observed, self._memory, now)
        for name, bounds in decision.bounds:
            engine = next(pod.engine for pod in self._pods if pod.name == name)
            if engine is not None:
                engine.limits.patch(
                    {
                        "concurrency_min": bounds.concurrency_min,
                        "concurrency_max": bounds.concurrency_max,
                        "max_queue": bounds.max_queue,
                        "kv_watermark": bounds.kv_watermark,
                        "itl_target": bounds.itl_target,
                        "ttft_target": bounds.ttft_target,
                    },
                    bounds.ttl,
                    now,
                )
        run.said += [Said(now, reason) for reason in decision.reasons]
        run.replicas.append((now, len(self._pods)))
        if decision.concurrency is not None:
            run.limits.append((now, decision.concurrency))
        if decision.replicas is not None:
            self._scale(now, decision.replicas, decision.victims)
        run.wanted.append((now, self._wanted))

    def _scale(self, now: float, replicas: int, victims: Sequence[str]) -> None:
        """What the Deployment's controller does: create what is missing, drain the victims first of what is over."""
        staying = [pod for pod in self._pods if not pod.leaving]
        order = {name: place for place, name in enumerate(victims)}
        staying.sort(key=lambda pod: order.get(pod.name, len(order)))
        for pod in staying[: max(0, len(staying) - replicas)]:
            pod.leaving = True
        for _ in range(replicas - len(staying)):
            self._add(now, ready_at=now + self.settings.cold_start)
        self._wanted = replicas

    def _view(self, pod: Pod, now: float) -> PodView:
        if pod.engine is None:
            return PodView(pod.name, "loading", pod.created_at, created_age=now - pod.created_at)
        pod.sample, pod.sampled_at = parse(pod.engine.scrape()), now
        phase: PodPhase = "draining" if pod.leaving else "ready"
        return PodView(pod.name, phase, pod.ready_at, pod.sample, now, created_age=now - pod.created_at)
