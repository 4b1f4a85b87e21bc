"""What a step is told to do and what came of it, as values: the scheduler's whole conversation with a runner.

A runner (or the simulator) needs nothing else: `plan()` gives a `Plan`, `settle(plan, sampled)` gives `Outcome`s.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sluice_engine.deadline import Cut, Deadline
from sluice_engine.request import Sampling
from sluice_law.steptime import StepWork

Finish = Literal["stop", "length", "abort", "error"]


PENDING = -1  # in place of a token that the step before this one samples; the runner knows it by the slot


class Twin(NamedTuple):
    """A further sample of a prompt that a row completes: it chooses its first token from that row's logits and goes
    on from the same blocks."""

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
    drafts: int = 0  # so many of the tokens, at the end, are not known but guessed
    twins: tuple[Twin, ...] = ()

    @property
    def choosers(self) -> tuple[str, ...]:
        """Who chooses a token from this row's logits: its request and its twins, in the order of `sampled`."""
        return (self.request_id, *(twin.request_id for twin in self.twins)) if self.samples else ()


class Join(NamedTuple):
    """A request that (again) begins to run: its slot now has these sampling parameters."""

    request_id: str
    slot: int
    sampling: Sampling
    prompt_length: int = 0
    known: tuple[int, ...] = ()  # all its tokens, only where the sampling remembers them
    token_types: tuple[int, ...] = ()  # of a whole request


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. Rows: decoding requests first, then prompt chunks. `sampled` of `settle` follows the order of the
    rows that sample, each row's `choosers` together. A row with drafts gives the accepted ones and one more token."""

    step: int
    rows: tuple[Row, ...]
    joins: tuple[Join, ...]
    preempted: str | None
    work: StepWork
    prompt_tokens: int  # of requests scheduled for the first time
    cached_prompt_tokens: int
    leans: tuple[tuple[str, str], ...] = ()  # (request, other): starts from blocks that the other fills in this step
    scrub: tuple[int, ...] = ()  # blocks of failed requests, to zero before anything is computed
    copies: tuple[tuple[int, int], ...] = ()  # (source, target): block contents to copy, before anything is computed;
    # blocks of host memory are numbered behind those of the pool; copies to and from it come first, in their order
    forks: bool = False  # some row has twins
    draft_tokens: int = 0  # beside `work`
    draft_context: float = 0.0  # as `StepWork.prefill_context`
    timed: bool = False  # a target bounded its prompts: it should take that long
    deadline: Deadline | None = None  # the last row is a chunk, whose end may be given up; None: all is computed
    given_up: int = 0  # tokens of that chunk that were not computed in time

    @property
    def plain(self) -> bool:
        """Whether each row computes its tokens and at most samples one more."""
        return not self.draft_tokens and not self.forks

    @property
    def certain(self) -> bool:
        """Whether all that it does to the books, but for the tokens themselves, is known before it has run: only then
        can the next step be planned meanwhile (`foresight.py`)."""
        return self.plain and self.deadline is None

    def shortened(self, cut: Cut) -> "Plan":
        """The same step as it ran, with what was kept of its chunk. `work` counts what was spent on the rest, so that
        the step-time model learns from the step as from others."""
        chunk = self.rows[-1]
        spent = max(cut.kept, round(cut.worth))
        work = self.work._replace(
            prefill_tokens=spent, prefill_context=self.work.prefill_context * spent / len(chunk.tokens)
        )
        kept = chunk._replace(tokens=chunk.tokens[: cut.kept])
        return replace(self, rows=(*self.rows[:-1], kept), work=work, given_up=len(chunk.tokens) - cut.kept)

    @property
    def whole_work(self) -> StepWork:
        """`work` and the drafts, each of which is computed like a chunk of a prompt."""
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
