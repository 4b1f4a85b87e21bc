"""llm-d's Workload Variant Autoscaler, model-based: the largest arrival rate per replica by a queueing model.

Source: llm-d-workload-variant-autoscaler, pkg/analyzer/queueanalyzer.go and pkg/core/allocation.go. One iteration of
a batch of n takes T(n) = α + n·(β·(in + out)/(out + 1) + γ·(in + out/2)); a prompt takes T(n) + (β + γ)·in, a token
T(n) + β + γ·(in + out/2); μ(n) = n / (prompt + out·token). The queue holds ten batches. The mean TTFT (wait, prompt,
one token) and the mean token time must meet the SLO; replicas = ceil(arrival rate / largest rate).
WVA estimates α, β, γ with an extended Kalman filter; this implementation takes the engines' own published fit, which is
at least as good: α = base, β = prefill_token, γ = kv_token with the cost per sequence spread over the mean context.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.targets import max_concurrency, targets
from sluice_perfmodel.slo_limits import Targets
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.metrics import increase
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob
from sluice_sim.policies.wva import hpa
from sluice_sim.policies.wva.mm1_queue import EPSILON, Steady, largest, solve

WINDOW: Final = 60.0  # seconds
QUEUE_TO_BATCH: Final = 10
SHARE: Final = Knob("targets", 1.0, (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "of the SLO")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Seconds: `alpha` per iteration, `beta` per computed token, `gamma` per KV token read."""

    alpha: float
    beta: float
    gamma: float


@dataclass(frozen=True, slots=True)
class Size:
    """The mean request, in tokens."""

    prompt: float
    output: float


@dataclass(frozen=True, slots=True)
class QueueingMemory:
    """The counters and the published count."""

    ledger: increase.Ledger = field(default_factory=increase.Ledger)
    published: hpa.Published = field(default_factory=hpa.Published)


@dataclass(frozen=True, slots=True)
class WvaQueueing(PeerLaw[QueueingMemory]):
    """`setting` is the share of the SLO targets that the means must meet."""

    setting: float = SHARE.default
    name: str = "wva-queueing"
    knob: Knob = SHARE
    memory_type: ClassVar = QueueingMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: QueueingMemory, now: float
    ) -> Recommendation[QueueingMemory]:
        """Publish a count once a minute: minReplicas without traffic, no change without a fit or a feasible rate."""
        ledger = increase.absorb(memory.ledger, seen, now, WINDOW)
        published = memory.published
        if hpa.is_due(published, now):
            wanted, window = seen.replicas, increase.over(ledger, now, WINDOW)
            mean = increase.traffic(window)
            models = [sample.step_model for _, sample in seen.ready if sample.step_model is not None]
            if window.seconds >= WINDOW / 2 and seen.ready and window.count("arrived_total") == 0:
                wanted = spec.scaling.min_replicas
            elif mean is not None and models:
                size = Size(mean.prompt * (1.0 - mean.hit), mean.output)
                share = self.setting
                target = targets(spec)
                target = replace(target, ttft=target.ttft * share, itl=target.itl * share)
                rate = largest_rate(fitted(models, size), size, max_concurrency(spec), target)
                wanted = seen.replicas if rate is None else max(1, math.ceil(mean.rate / rate - 1e-9))
            published = hpa.publish(published, wanted, now)
        after, published = hpa.follow(spec, published, seen, now)
        why = f"{published.wanted} are wanted by the queueing model."
        return Recommendation(after, why, QueueingMemory(ledger, published))


def fitted(models: list[StepTimeModel], size: Size) -> Parameters:
    """The mean of the engines' fits, as the three parameters of the queueing model."""
    count, context = len(models), max(1.0, size.prompt + size.output / 2.0)
    return Parameters(
        alpha=math.fsum(model.base for model in models) / count,
        beta=math.fsum(model.prefill_token for model in models) / count,
        gamma=math.fsum(model.kv_token + model.sequence / context for model in models) / count,
    )


def iteration(by: Parameters, size: Size, batch: float) -> float:
    """T(n): seconds of one iteration with a batch of n."""
    computed = (size.prompt + size.output) / (size.output + 1.0)
    return by.alpha + batch * (by.beta * computed + by.gamma * (size.prompt + size.output / 2.0))


def prefill(by: Parameters, size: Size, batch: float) -> float:
    """Seconds to prefill one prompt in a batch of n."""
    return 0.0 if size.prompt == 0 else iteration(by, size, batch) + (by.beta + by.gamma) * size.prompt


def decode(by: Parameters, size: Size, batch: float) -> float:
    """Seconds per output token in a batch of n."""
    return iteration(by, size, batch) + by.beta + by.gamma * (size.prompt + size.output / 2.0)


def largest_rate(by: Parameters, size: Size, batch: int, target: Targets) -> float | None:
    """The largest throughput (requests per second) at which both means meet their targets; None if there is none.

    `batch` is N, the maximum concurrency."""
    served = [n / (prefill(by, size, n) + size.output * decode(by, size, n)) for n in range(1, batch + 1)]
    low, high = served[0] * EPSILON, served[-1] * (1.0 - EPSILON)

    def parts(rate: float) -> tuple[Steady, float, float]:
        steady = solve(rate, served, batch * QUEUE_TO_BATCH)
        prompt = prefill(by, size, steady.serving)
        return steady, prompt, (steady.service - prompt) / size.output

    def first_token(rate: float) -> float:
        steady, prompt, token = parts(rate)
        return steady.wait + prompt + token

    by_ttft = largest(low, high, target.ttft, first_token)
    by_itl = largest(low, high, target.itl, lambda rate: parts(rate)[2])
    if by_ttft is None or by_itl is None:
        return None
    return solve(min(by_ttft, by_itl), served, batch * QUEUE_TO_BATCH).throughput


WVA_QUEUEING: Final = Entry(SHARE, WvaQueueing)
