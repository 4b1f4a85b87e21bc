"""The step that is being planned: what was handed out so far. Data only; `planner.StepPlanner` fills it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_engine.request import Request
from sluice_engine.scheduler.plan import Join, Row, StepMode
from sluice_perfmodel.step_time import StepWork


@dataclass(slots=True)
class StepDraft:
    """Rows, and what they add up to."""

    mode: StepMode = StepMode.PLAIN
    ahead: bool = False  # planned while the step before it runs: no request is preempted
    filled_before: Mapping[int, str] = field(default_factory=dict)  # `filling` of that step
    postponed: bool = False  # a request got nothing because none may be preempted: settle before the next plan

    rows: list[Row] = field(default_factory=list)  # decoding requests first
    joins: list[Join] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)  # of blocks: (source, target)
    preempted: str | None = None  # at most one request per step
    prompts: list[Request] = field(default_factory=list)  # running requests whose prompt is not computed yet
    filling: dict[int, str] = field(default_factory=dict)  # indexed block → the request that fills it in this step
    dependencies: list[tuple[str, str]] = field(default_factory=list)  # as in `Plan`
    has_forks: bool = False  # a row has further samples

    decodes: int = 0  # rows of decoding requests
    kv_tokens: int = 0  # that these rows read
    itl_targets: set[float] = field(default_factory=set)  # of decoding requests, seconds
    prefill_tokens: int = 0
    prefill_context: float = 0.0  # as `StepWork.prefill_context`
    scored: int = 0  # prompt tokens whose logprobs are reported
    draft_tokens: int = 0
    draft_context: float = 0.0  # as `StepWork.prefill_context`
    prompt_tokens: int = 0  # of requests that start for the first time
    cached_prompt_tokens: int = 0  # of these

    @property
    def work(self) -> StepWork:
        """The step's work without draft tokens."""
        return StepWork(self.prefill_tokens, self.prefill_context, self.decodes, self.kv_tokens)
