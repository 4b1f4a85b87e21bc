"""A step and its results as values: the interface between the scheduler and a runner.

A runner (or the simulator) needs nothing else: `plan()` gives a `Plan`, `settle(plan, sampled)` gives `Outcome`s.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal, NamedTuple

from sluice_engine.control.step_deadline import Cut, Deadline
from sluice_engine.sampling_params import SamplingParams
from sluice_perfmodel.step_time import StepWork

Finish = Literal["stop", "length", "abort", "error"]

PENDING: Final = -1  # in place of a token that the step before this one samples; the runner finds it by the slot


class StepMode(Enum):
    """What a step's effect on the scheduler's state depends on. A step has one mode, so drafts, deadlines and overlap
    exclude one another: only behind a PLAIN step can the next one be planned while it runs, and only if that one is not
    DRAFTING, because drafts continue tokens that the step in flight samples (`lookahead`)."""

    PLAIN = "plain"  # known before the step runs: each row computes its tokens and samples at most one
    DRAFTING = "drafting"  # on how many draft tokens the model accepts
    BOUNDED = "bounded"  # on the time: the end of the step's only chunk may be cut at a deadline


class Fork(NamedTuple):
    """A further sample of the prompt that a row completes: its first token is drawn from that row's logits, and it
    continues from the same blocks."""

    request_id: str
    slot: int


class Row(NamedTuple):
    """The tokens that one request computes in one step."""

    request_id: str
    slot: int  # row of the runner's per-sequence tables, stable while the request runs
    start: int  # position of the first token: tokens whose KV is already cached
    tokens: tuple[int, ...]
    samples: bool  # this step computes the last known token, so a new one is sampled
    first_block: int  # index in the block table where new_blocks go
    new_blocks: tuple[int, ...]
    drafts: int = 0  # of the tokens, at the end: drafts
    forks: tuple[Fork, ...] = ()
    targets: tuple[
        int, ...
    ] = ()  # prompt tokens whose logprobs are reported, from the logits of the tokens before them

    @property
    def scored(self) -> slice:
        """Places in `tokens` whose logits give the logprobs of the targets: the last ones, but for one that samples."""
        end = len(self.tokens) - self.samples
        return slice(end - len(self.targets), end)

    @property
    def sampled_ids(self) -> tuple[str, ...]:
        """Requests that get a token from this row's logits: its own and its forks', in the order of `sampled`."""
        return (self.request_id, *(fork.request_id for fork in self.forks)) if self.samples else ()


class Join(NamedTuple):
    """A request that starts or resumes: its slot has these sampling parameters from now on."""

    request_id: str
    slot: int
    sampling: SamplingParams
    prompt_length: int = 0
    known: tuple[int, ...] = ()  # all its tokens, only where the sampling depends on them
    stop_ids: frozenset[int] = frozenset()  # only with min_tokens: not sampled before that many output tokens
    token_types: tuple[int, ...] = ()  # of a pooling request


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. Rows: decoding requests first, then prompt chunks. `sampled` of `settle` follows the order of the rows
    that sample, the `sampled_ids` of each together. A row with drafts gives the accepted ones and one more token."""

    step: int
    rows: tuple[Row, ...]
    joins: tuple[Join, ...]
    preempted: str | None
    work: StepWork
    prompt_tokens: int  # of requests scheduled for the first time
    cached_prompt_tokens: int
    dependencies: tuple[tuple[str, str], ...] = ()  # (request, other): starts from blocks that the other fills now
    scrub: tuple[int, ...] = ()  # blocks of failed requests, to zero before anything is computed
    copies: tuple[tuple[int, int], ...] = ()  # (source, target): block contents to copy, before anything is computed;
    # blocks of host memory are numbered after those of the pool; copies to and from it come first, in their order
    has_forks: bool = False  # some row has forks
    draft_tokens: int = 0  # not part of `work`
    draft_context: float = 0.0  # as `StepWork.prefill_context`
    timed: bool = False  # an inter-token target bounded its chunks
    deadline: Deadline | None = None  # the last row is a chunk whose end may be cut; None: all is computed
    cut_tokens: int = 0  # tokens of that chunk that were not computed

    @property
    def mode(self) -> StepMode:
        """What its effect depends on."""
        if self.draft_tokens:
            return StepMode.DRAFTING
        return StepMode.PLAIN if self.deadline is None else StepMode.BOUNDED

    @property
    def plain(self) -> bool:
        """Whether each row computes its tokens and at most samples one more."""
        return not self.draft_tokens and not self.has_forks

    @property
    def certain(self) -> bool:
        """Whether its effect on the state, but for the tokens themselves, is known before it has run: only then can the
        next step be planned meanwhile."""
        return self.mode is StepMode.PLAIN and not self.has_forks

    def shortened(self, cut: Cut) -> "Plan":
        """The same step with the computed part of its chunk. `work` includes the time spent on the rest, so that the
        step-time model learns from the step as from others."""
        chunk = self.rows[-1]
        spent = max(cut.kept, round(cut.equivalent_tokens))
        work = self.work._replace(
            prefill_tokens=spent, prefill_context=self.work.prefill_context * spent / len(chunk.tokens)
        )
        kept = chunk._replace(tokens=chunk.tokens[: cut.kept])
        return replace(self, rows=(*self.rows[:-1], kept), work=work, cut_tokens=len(chunk.tokens) - cut.kept)

    @property
    def whole_work(self) -> StepWork:
        """`work` and the drafts, each of which is computed like a prompt token."""
        if not self.draft_tokens:
            return self.work
        return self.work._replace(
            prefill_tokens=self.work.prefill_tokens + self.draft_tokens,
            prefill_context=self.work.prefill_context + self.draft_context,
        )


class Outcome(NamedTuple):
    """What one step gave one request."""

    request_id: str
    token_ids: tuple[int, ...]
    finish: Finish | None
    error: str | None
    first: bool  # the request's first outcome
    cached_tokens: int
    queue_seconds: float  # arrival to first scheduled, with the first outcome; 0 after it
    gap: float | None  # seconds since the request's previous token

    @property
    def gaps(self) -> list[float]:
        """Seconds between two tokens, one entry for each of these tokens; tokens of one step share its time."""
        count = len(self.token_ids) or 1
        return [] if self.gap is None else [self.gap / count] * count
