"""llm-d's token-aware autoscaling: seconds of waiting prefill work, and KV cache occupancy.

Source: llm-d/llm-d, guides/workload-autoscaling/keda-epp-token-aware/README.md, co-located form:
max(ceil(backlog / V_P / 1.5 s), ceil(Σ KV occupancy / 0.8)) through KEDA and an HPA with its default behavior. V_P is
the prompt tokens per second of one replica. llm-d calibrates it as chunk / TTFT of an idle stack; this implementation
computes the same from the engines' own step-time model. The backlog is the uncached prompt tokens of waiting requests:
llm-d's router also counts tokens in flight, which engines do not publish.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.hpa.behavior import DEFAULT, HpaMemory, due, settle
from sluice_sim.policies.hpa.ratio import in_total
from sluice_sim.policies.metrics import increase
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob, bounds

WINDOW: Final = 300.0  # seconds for the mean prompt length
KV_THRESHOLD: Final = 0.8
BUDGET: Final = Knob("prefillThreshold", 1.5, (0.05, 0.1, 0.2, 0.4, 0.75, 1.5, 3.0, 5.0, 7.5), "s of prompt work")


@dataclass(frozen=True, slots=True)
class TokenMemory:
    """The counters and the HPA's state."""

    ledger: increase.Ledger = field(default_factory=increase.Ledger)
    hpa: HpaMemory = field(default_factory=HpaMemory)


@dataclass(frozen=True, slots=True)
class LlmdTokens(PeerLaw[TokenMemory]):
    """`setting` is the target of waiting prefill work per replica, in seconds."""

    setting: float = BUDGET.default
    name: str = "llm-d-tokens"
    knob: Knob = BUDGET
    memory_type: ClassVar = TokenMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: TokenMemory, now: float
    ) -> Recommendation[TokenMemory]:
        """The larger count of both triggers. An unreadable trigger is ignored for scale-up and blocks scale-down."""
        count = seen.replicas
        memory = replace(memory, ledger=increase.absorb(memory.ledger, seen, now, WINDOW))
        if not due(memory.hpa, now):
            return Recommendation(count, "", memory)
        chunk = spec.engine.scheduling.max_batched_tokens
        speeds = [speed for _, sample in seen.ready if (speed := prefill_speed(sample.step_model, chunk)) > 0]
        backlog = sum(sample.waiting for _, sample in seen.scraped) * _uncached_prompt(memory.ledger, now)
        full = sum(sample.kv_occupancy for _, sample in seen.scraped)
        wanted: int | None = None
        seconds = 0.0
        if seen.scraped:
            wanted = in_total(full, KV_THRESHOLD, seen.existing, count)
            if speeds:
                seconds = backlog / (sum(speeds) / len(speeds))
                wanted = max(wanted, in_total(seconds, self.setting, seen.existing, count))
            else:
                wanted = max(wanted, count)
        after, hpa = settle(memory.hpa, DEFAULT, count, wanted, bounds(spec), now)
        why = f"{seconds:.2g} s of prompt work wait and {full:.2f} KV caches are full."
        return Recommendation(after, why, TokenMemory(memory.ledger, hpa))


def prefill_speed(model: StepTimeModel | None, chunk: int) -> float:
    """V_P: prompt tokens per second of an idle engine on one prompt of `chunk` tokens; 0 without a model."""
    if model is None or chunk <= 0:
        return 0.0
    seconds = model.base + model.prefill_token * chunk + model.prefill_context * chunk * chunk / 2.0
    return chunk / seconds if seconds > 0 else 0.0


def _uncached_prompt(ledger: increase.Ledger, now: float) -> float:
    """Mean uncached prompt tokens per accepted request; 0 without any."""
    window = increase.over(ledger, now, WINDOW)
    tokens = window.count("prompt_tokens_total") - window.count("cached_prompt_tokens_total")
    return max(0.0, tokens) / window.accepted if window.accepted > 0 else 0.0


LLMD_TOKENS: Final = Entry(BUDGET, LlmdTokens)
