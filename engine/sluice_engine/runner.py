"""Runs a plan on the model: tensors in, one token per sampling row out. One request's failure stays its own.

Two halves, so that one step can be prepared while another runs: `prepare` turns a plan into tensors, the call that it
gives computes them. A token that the step before samples is filled in by the second half; the first does without.
"""

import logging
import time
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.blockwork import BlockWork
from sluice_engine.deadline import Cut, Deadline
from sluice_engine.isolate import check_device, isolate
from sluice_engine.model.batch import Batch
from sluice_engine.model.kv import KVCache
from sluice_engine.model.load import LoadedModel
from sluice_engine.prepare import Gathered, Prepared, Preparer
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling import NOT_A_NUMBER, Sampled, Sampler
from sluice_engine.scheduler import Plan, Row

_COPIES = 8  # pairs of them, to measure one

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StepResult:
    """Tokens by the order of the plan's sampling rows; requests that failed, with a sentence each; logprobs of those
    that asked for them, one per token; of how many accepted drafts, by request, the token stands behind."""

    sampled: list[int]
    errors: dict[str, str] = field(default_factory=dict)
    logprobs: dict[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)  # of whole texts, float32 in little-endian
    cut: Cut | None = None  # the end of the plan's chunk was given up: settle `plan.shortened(cut)`


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A plan with its rows gathered but for those in `errors`, and the batch of all of them; None where that failed."""

    plan: Plan
    gathered: list[Gathered]
    prepared: Prepared | None
    errors: dict[str, str]


class Runner:
    """The model with its KV cache. Not thread-safe, but that one step may be prepared while another is computed."""

    def __init__(
        self, model: LoadedModel, *, num_blocks: int, block_size: int, max_num_seqs: int, host_blocks: int = 0
    ) -> None:
        self.model = model
        self.cache = KVCache(model.kv_shape, num_blocks, block_size, model.device, host_blocks)
        self._blockwork = BlockWork(self.cache)
        self._preparer = Preparer(
            max_num_seqs=max_num_seqs,
            max_model_length=model.max_model_length,
            block_size=block_size,
            null_block=self.cache.null_block,
            device=model.device,
            windows=model.kv_shape.groups.windows,
        )
        self._sampler = Sampler(max_num_seqs, model.vocab_size, model.device)
        self._last: NDArray[np.int64] = np.zeros(max_num_seqs, dtype=np.int64)  # by slot: what was sampled last

    def run(self, plan: Plan) -> StepResult:
        """Prepare and compute."""
        return self.prepare(plan)()

    def swap_seconds(self) -> float:
        """Measured: seconds to copy one block to host memory, or back. Before serving: it writes the first block."""
        host = self.cache.first_host
        self.cache.swap(0, host)
        begun = time.perf_counter()
        for _ in range(_COPIES):
            self.cache.swap(0, host)
            self.cache.swap(host, 0)
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        return (time.perf_counter() - begun) / (2 * _COPIES)

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """The plan as tensors; a call computes it. Plans are prepared in their order, while at most the one before is
        being computed. Of rows that raise by themselves the call says so."""
        errors: dict[str, str] = {}
        groups = isolate(plan.rows, self._gather, errors)
        gathered = [group for some in groups.values() for group in some]
        prepared = None
        if not errors:
            try:
                prepared = self._preparer.batch(gathered)
            except Exception:  # noqa: BLE001 - the call batches again what it can, and finds out who raises
                _log.exception("a batch of %d rows could not be prepared", len(plan.rows))
        return partial(self._execute, PreparedStep(plan, gathered, prepared, errors))

    def _gather(self, rows: Sequence[Row]) -> dict[str, list[Gathered]]:
        """The rows in groups, all under the name of the first: whose they are is known from the groups."""
        self._preparer.install(rows)
        return {rows[0].request_id: self._preparer.gather(rows)}

    def _execute(self, step: PreparedStep) -> StepResult:
        """Compute the plan. If the batch raises, its rows are run one by one, and only those that raise fail; if it
        runs out of memory, its largest request fails and the rest is tried again. Raises RuntimeError where the
        accelerator is lost."""
        plan = step.plan
        result = StepResult([], dict(step.errors))
        wrong = self._blockwork.do(plan)
        if wrong:
            result.errors |= dict.fromkeys(_holders(step.gathered, wrong), "a block of its cache could not be written")
        for join in plan.joins:
            try:
                self._sampler.join(join.slot, join.sampling, join.known, join.prompt_length)
            except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
                result.errors[join.request_id] = f"its sampling could not be set up: {error}"
        rows = _without(plan.rows, result.errors) if result.errors else plan.rows
        tokens: dict[str, int] = {}
        if plan.draft_tokens:
            tokens = self._with_drafts(step, rows, result)
            rows = [_without_drafts(row) for row in rows if row.request_id not in tokens]
        deadline = plan.deadline if rows is plan.rows else None

        def forward(some: Sequence[Row]) -> dict[str, int]:
            return self._forward(self._batch(step, some), result, deadline if some is rows else None)

        tokens |= isolate(rows, forward, result.errors)
        for request_id, token in tokens.items():
            if token == NOT_A_NUMBER:
                result.errors[request_id] = "the model's output for this request is not a number"
        if all(row.request_id in result.errors for row in plan.rows):
            check_device(self.model.device)
        result.sampled = [tokens.get(name, NOT_A_NUMBER) for row in plan.rows for name in row.choosers]
        return result

    def _with_drafts(self, step: PreparedStep, rows: Sequence[Row], result: StepResult) -> dict[str, int]:
        """As `_forward`, less the rows that must run again without their drafts, which are a bet and harm nobody: all of
        them where that raises, and one that is not a number, for the tokens before a draft meet its key and value
        masked, and a masked NaN still is one."""
        try:
            tokens = self._forward(self._batch(step, rows), result)
        except Exception:  # noqa: BLE001 - whatever it was, the step can do without drafts
            _log.exception("a step of %d rows with drafts failed; running it without", len(rows))
            return {}
        drafting = {row.request_id for row in rows if row.drafts}
        return {name: token for name, token in tokens.items() if token != NOT_A_NUMBER or name not in drafting}

    def _batch(self, step: PreparedStep, rows: Sequence[Row]) -> Prepared:
        """The batch of these rows of a step; that of all of them is at hand, unless it could not be prepared."""
        if rows is step.plan.rows and step.prepared is not None:
            return step.prepared
        parts = (group.only(rows) for group in step.gathered)
        return self._preparer.batch([part for part in parts if part is not None])

    @torch.inference_mode()
    def _forward(self, prepared: Prepared, result: StepResult, deadline: Deadline | None = None) -> dict[str, int]:
        """A token for every row and its twins: with drafts the one behind those that are accepted. A chunk that does not
        sample has one as well, only to see that it is a number: NaN anywhere in a chunk reaches its last token, and must
        be found before others can hit the chunk's blocks (of one whose end was given up both ends are looked at, by the
        compiled decoder). Logprobs and how many drafts were accepted go into `result`.
        """
        batch, choosing = prepared.batch, prepared.choosing
        if len(prepared.pending):
            said = torch.from_numpy(self._last[prepared.pending_slots]).to(self.model.device)
            batch.input_ids[0, torch.from_numpy(prepared.pending).to(self.model.device)] = said
        if int(batch.input_ids.max()) >= self.model.vocab_size or int(batch.input_ids.min()) < 0:
            raise ValueError(f"a token id lies outside the vocabulary of {self.model.vocab_size}")
        output = self.model.module(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            logits_to_keep=batch.logits_index,
            sluice_batch=batch,
            sluice_cache=self.cache,
            **({} if deadline is None else {"sluice_deadline": deadline}),
        )
        _, choosers, slots, positions, samples, drafts = choosing
        sampled = self._sampler.sample(output.logits[0], slots, positions, samples, drafts)
        # A row without a number fails; until that is known a row of the next step may ask what it said.
        self._last[slots] = np.maximum(sampled.tokens, 0)
        for row, logprob in sampled.logprobs.items():  # in the order of the rows
            name = choosers[row]
            result.logprobs[name] = (*result.logprobs[name], logprob) if name in result.logprobs else (logprob,)
        if deadline is not None:
            result.cut = output.cut
        if sampled.kept is None:
            return dict(zip(choosers, sampled.tokens, strict=True))
        self._erase(batch, sampled)
        tokens: dict[str, int] = {}
        for row in np.flatnonzero(sampled.kept).tolist():
            name = choosers[row]
            if name in tokens:
                result.accepted[name] = result.accepted.get(name, 0) + 1
            tokens[name] = sampled.tokens[row]
        return tokens

    def _erase(self, batch: Batch, sampled: Sampled) -> None:
        """Zero what a rejected draft may have cached as NaN: its place is masked until it is written again, and a
        masked NaN still is one (`model/kv.py`)."""
        broken = [row for row, token in enumerate(sampled.tokens) if token == NOT_A_NUMBER]
        if broken:
            for each in (batch, *batch.others):
                self.cache.erase(each.slot_mapping[batch.logits_index[broken]])


def _holders(gathered: Sequence[Gathered], blocks: Collection[int]) -> list[str]:
    """Whose rows have one of these blocks in their table."""
    wanted = np.fromiter(blocks, dtype=np.int64, count=len(blocks))
    return [
        group.rows[place].request_id
        for group in gathered
        for place in np.flatnonzero(np.isin(group.tables, wanted).any(axis=(0, 2))).tolist()
    ]


def _without(rows: Sequence[Row], failed: Container[str]) -> list[Row]:
    """The rows of requests that did not fail, without twins that did."""
    return [
        row._replace(twins=tuple(twin for twin in row.twins if twin.request_id not in failed)) if row.twins else row
        for row in rows
        if row.request_id not in failed
    ]


def _without_drafts(row: Row) -> Row:
    return row._replace(tokens=row.tokens[: len(row.tokens) - row.drafts], drafts=0) if row.drafts else row
