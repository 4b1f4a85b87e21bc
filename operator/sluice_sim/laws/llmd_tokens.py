"""llm-d's token-aware autoscaling: seconds of prompt work that wait, and KV caches that are full.

Source: llm-d/llm-d, guides/workload-autoscaling/keda-epp-token-aware/README.md, co-located form:
max(ceil(backlog / V_P / 1.5 s), ceil(Σ KV occupancy / 0.8)) through KEDA and an HPA with its default behaviour. V_P,
the prompt tokens per second of one replica, is calibrated there as chunk / TTFT of an idle stack; here it is the same
of the engines' own step-time model. The backlog is the uncached prompt tokens of the requests that wait: the router
that counts tokens under way is not part of what an engine publishes.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from sluice_law.steptime import StepTimeModel
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.values import Decision, Observed
from sluice_sim.laws import growth
from sluice_sim.laws.hpa_behavior import DEFAULT, HpaMemory, due, settle
from sluice_sim.laws.hpa_ratio import in_total
from sluice_sim.laws.law import Entry, Knob, ask, bounds, current
from sluice_sim.laws.seen import see

WINDOW: Final = 300.0  # seconds that the mean prompt is taken over
KV_THRESHOLD: Final = 0.8
BUDGET: Final = Knob("prefillThreshold", 1.5, (0.05, 0.1, 0.2, 0.4, 0.75, 1.5, 3.0, 5.0, 7.5), "s of prompt work")


@dataclass(frozen=True, slots=True)
class TokenMemory:
    """Counters and the HPA's memory."""

    ledger: growth.Ledger = field(default_factory=growth.Ledger)
    hpa: HpaMemory = field(default_factory=HpaMemory)


@dataclass(frozen=True, slots=True)
class LlmdTokens:
    """`setting` is the prompt work that may wait per replica, in seconds."""

    setting: float = BUDGET.default
    name: str = "llm-d-tokens"
    knob: Knob = BUDGET
    admits: bool = False

    def initial(self) -> TokenMemory:
        """Nothing seen yet."""
        return TokenMemory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: TokenMemory, now: float
    ) -> tuple[Decision, TokenMemory]:
        """The larger of both triggers; one that cannot be read is left out of a scale-up and stops a scale-down."""
        count, seen = current(spec, observed), see(spec, observed, now)
        memory = replace(memory, ledger=growth.absorb(memory.ledger, seen, now, WINDOW))
        if not due(memory.hpa, now):
            return ask(spec, observed, self.name, count, ""), memory
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
        return ask(spec, observed, self.name, after, why), TokenMemory(memory.ledger, hpa)


def prefill_speed(model: StepTimeModel | None, chunk: int) -> float:
    """V_P: tokens per second of one idle engine that is given one prompt of `chunk` tokens; 0 where unknown."""
    if model is None or chunk <= 0:
        return 0.0
    seconds = model.base + model.prefill_token * chunk + model.prefill_context * chunk * chunk / 2.0
    return chunk / seconds if seconds > 0 else 0.0


def _uncached_prompt(ledger: growth.Ledger, now: float) -> float:
    """Tokens of the mean prompt that no cache holds; 0 while none was computed."""
    window = growth.over(ledger, now, WINDOW)
    tokens = window.count("prompt_tokens_total") - window.count("cached_prompt_tokens_total")
    return max(0.0, tokens) / window.accepted if window.accepted > 0 else 0.0


LLMD_TOKENS: Final = Entry(BUDGET, LlmdTokens)
