"""Executes a plan on the model: tensors in, one token per sampling row out. A failure of one request is isolated.

Execution has two halves, so that one step can be prepared while another runs: `prepare` converts a plan to tensors, and
the callable that it returns computes them. Tokens that the preceding step samples are filled in by the second half.
"""

import logging
import time
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.batch_builder import BatchBuilder
from sluice_engine.backend.block_copies import BlockCopier
from sluice_engine.backend.failure_isolation import check_device, isolate
from sluice_engine.backend.step_inputs import GatheredRows, StepInputs
from sluice_engine.control.step_deadline import Cut, Deadline
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.batch import Batch
from sluice_engine.model.kv_cache import KVCache
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling import NOT_A_NUMBER, Sampled, Sampler
from sluice_engine.sampling.mask_source import Broadcast
from sluice_engine.scheduler import Plan, Row

NOT_FINITE = "the model's output for this request is not a number"
_COPIES = 8  # round trips to measure one block copy

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StepResult:
    """Results of a step. `sampled`: tokens in the order of the plan's sampling rows. `errors`: failed requests with one
    sentence each. `logprobs`: one per token, for requests that asked for them. `accepted`: number of accepted drafts
    per request.
    """

    sampled: list[int]
    errors: dict[str, str] = field(default_factory=dict)
    logprobs: dict[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    prompt_logprobs: dict[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)  # one per target of its row
    accepted: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)  # of pooling requests, little-endian float32
    seconds: float | None = None  # since the end of the preceding step, by the device's clock; None: not measured there
    cut: Cut | None = None  # the plan's chunk was truncated: settle `plan.shortened(cut)`


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A plan with its gathered rows, without those in `errors`, and the batch of all rows. The batch is None if a row
    has an error or batching failed.
    """

    plan: Plan
    gathered: list[GatheredRows]
    inputs: StepInputs | None
    errors: dict[str, str]


class Runner:
    """The model with its KV cache. Not thread-safe, except that one step may be prepared while another is computed."""

    def __init__(
        self, model: LoadedModel, *, num_blocks: int, block_size: int, max_num_seqs: int, host_blocks: int = 0
    ) -> None:
        self.model = model
        self.cache = KVCache(model.kv_shape, num_blocks, block_size, model.device, host_blocks)
        self._block_copier = BlockCopier(self.cache)
        self._batch_builder = BatchBuilder(
            max_num_seqs=max_num_seqs,
            max_model_length=model.max_model_length,
            block_size=block_size,
            null_block=self.cache.null_block,
            device=model.device,
            windows=model.kv_shape.groups.windows,
            two_in_flight=True,
        )
        self._sampler = Sampler(max_num_seqs, model.vocab_size, model.device, model.grammars, owns_logits=True)
        self._last: NDArray[np.int64] = np.zeros(max_num_seqs, dtype=np.int64)  # by slot: the last sampled token
        self._describe: Callable[[Batch, KVCache], object] | None = getattr(model.module.forward, "describe", None)

    @classmethod
    def sized(cls, model: LoadedModel, config: CacheConfig) -> Self:
        """The runner for a cache of these sizes."""
        return cls(
            model,
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            host_blocks=config.host_blocks,
        )

    def share_masks(self, broadcast: Broadcast, *, leads: bool) -> None:
        """Before any step, for ranks that share the model: the masks of grammars are those of the rank that leads."""
        self._sampler.share_masks(broadcast, leads=leads)

    def run(self, plan: Plan) -> StepResult:
        """Prepare and compute the plan."""
        return self.prepare(plan)()

    def swap_seconds(self) -> float:
        """Measured seconds to copy one block to host memory or back. Call it before serving: it overwrites the first
        block.
        """
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
        """Convert the plan to tensors; the returned callable computes it. Plans are prepared in order, while at most
        the preceding plan is being computed. The callable reports rows that raise alone.
        """
        step = self._gathered(plan)
        if not step.errors:
            try:
                inputs = self._batch_builder.batch(step.gathered)
                if self._describe is not None:
                    self._describe(inputs.batch, self.cache)
                step = replace(step, inputs=inputs)
            except self.model.faults:  # the callable batches again and isolates the failing rows
                _log.exception("a batch of %d rows could not be prepared", len(plan.rows))
        return partial(self._execute, step)

    def _gathered(self, plan: Plan) -> PreparedStep:
        """The plan's rows, without a batch."""
        errors: dict[str, str] = {}
        groups = isolate(plan.rows, self._gather, errors, self.model.faults)
        if errors or len(groups) != 1:
            self._batch_builder.forget()
        return PreparedStep(plan, [group for some in groups.values() for group in some], None, errors)

    def _gather(self, rows: Sequence[Row]) -> dict[str, list[GatheredRows]]:
        """Gather the rows in groups, keyed by the first row's request id; the groups identify each row's request."""
        self._batch_builder.install(rows)
        return {rows[0].request_id: self._batch_builder.gather(rows)}

    def _execute(self, step: PreparedStep) -> StepResult:
        """Compute the plan. If the batch raises, its rows run one by one and only those that raise alone fail. If it
        runs out of memory, its largest request fails and the rest is retried. Raises RuntimeError if the accelerator is
        lost.
        """
        plan = step.plan
        result = StepResult([], dict(step.errors))
        wrong = self._block_copier.apply(plan)
        if wrong and self.model.ranks > 1:
            raise RuntimeError("a block of the cache could not be written on one rank, so the ranks differ")
        if wrong:
            result.errors |= dict.fromkeys(_holders(step.gathered, wrong), "a block of its cache could not be written")
        for join in plan.joins:
            try:
                self._sampler.join(join.slot, join.sampling, join.known, join.prompt_length, join.stop_ids)
            except self.model.faults as error:
                result.errors[join.request_id] = f"its sampling could not be set up: {error}"
        rows = _without(plan.rows, result.errors) if result.errors else plan.rows
        tokens: dict[str, int] = {}
        if plan.draft_tokens:
            tokens = self._with_drafts(step, rows, result)
            rows = [_without_drafts(row) for row in rows if row.request_id not in tokens]
        deadline = plan.deadline if rows is plan.rows else None

        def forward(some: Sequence[Row]) -> dict[str, int]:
            return self._forward(self._batch(step, some), result, deadline if some is rows else None)

        tokens |= isolate(rows, forward, result.errors, self.model.faults)
        for request_id, token in tokens.items():
            if token == NOT_A_NUMBER:
                result.errors.setdefault(request_id, NOT_FINITE)
        if all(row.request_id in result.errors for row in plan.rows):
            check_device(self.model.device)
        result.sampled = [tokens.get(name, NOT_A_NUMBER) for row in plan.rows for name in row.sampled_ids]
        return result

    def _with_drafts(self, step: PreparedStep, rows: Sequence[Row], result: StepResult) -> dict[str, int]:
        """As `_forward`, without the rows that must rerun without drafts: all rows if the step raises, and a drafting
        row whose output is NaN. Tokens before a draft see its masked key and value, and a masked NaN is still NaN.
        """
        try:
            tokens = self._forward(self._batch(step, rows), result)
        except self.model.faults:  # the step is rerun without drafts
            _log.exception("a step of %d rows with drafts failed; running it without", len(rows))
            return {}
        drafting = {row.request_id for row in rows if row.drafts}
        return {name: token for name, token in tokens.items() if token != NOT_A_NUMBER or name not in drafting}

    def _batch(self, step: PreparedStep, rows: Sequence[Row]) -> StepInputs:
        """The batch of these rows of a step. The batch of all rows is reused if it could be prepared."""
        if rows is step.plan.rows and step.inputs is not None:
            return step.inputs
        parts = (group.subset(rows) for group in step.gathered)
        return self._batch_builder.batch([part for part in parts if part is not None])

    @torch.inference_mode()
    def _forward(self, inputs: StepInputs, result: StepResult, deadline: Deadline | None = None) -> dict[str, int]:
        """One token for every row and every sample that shares it; with drafts, the token after the accepted ones. A
        chunk that does not sample also gets a token, as a NaN check: a NaN anywhere in a chunk reaches its last token,
        and must be found before another request can hit the chunk's blocks. For a truncated chunk the compiled decoder
        checks both ends. Logprobs and the number of accepted drafts are written to `result`.
        """
        batch, logits_rows = inputs.batch, inputs.logits_rows
        if len(inputs.pending):
            _fill(batch.input_ids, inputs.pending, self._last[inputs.pending_slots])
        if inputs.ids[0] < 0 or inputs.ids[1] >= self.model.vocab_size:
            raise ValueError(f"a token id lies outside the vocabulary of {self.model.vocab_size}")
        _, request_ids, slots, positions, samples, drafts = logits_rows
        self._sampler.begin(slots, samples, drafts)
        output = self._output(batch, {} if deadline is None else {"sluice_deadline": deadline})
        largest = getattr(output, "largest", None)  # of the compiled decoder
        sampled = None if largest is None or drafts is not None else self._sampler.take(largest, slots, samples)
        if sampled is None:
            sampled = self._sampler.sample(output.logits[0, : len(slots)], slots, positions, samples, drafts)
        if inputs.targets:
            result.prompt_logprobs |= self._sampler.score_prompts(output.logits[0, len(slots) :], inputs.targets)
        # A row with NaN fails at settle; until then the next step may read its token, so the token must be valid.
        self._last[slots] = np.maximum(sampled.tokens, 0)
        result.errors |= {request_ids[row]: fault for row, fault in sampled.faults.items()}
        for row, logprob in sampled.logprobs.items():  # in row order
            name = request_ids[row]
            result.logprobs[name] = (*result.logprobs[name], logprob) if name in result.logprobs else (logprob,)
        if deadline is not None:
            result.cut = output.cut
        if sampled.kept is None:
            return dict(zip(request_ids, sampled.tokens, strict=True))
        self._erase(batch, sampled)
        tokens: dict[str, int] = {}
        for row in np.flatnonzero(sampled.kept).tolist():
            name = request_ids[row]
            if name in tokens:
                result.accepted[name] = result.accepted.get(name, 0) + 1
            tokens[name] = sampled.tokens[row]
        return tokens

    def _output(self, batch: Batch, options: dict[str, Any]) -> Any:
        """The output of the model's forward pass, and the batch's keys and values in the cache."""
        return self.model.module(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            logits_to_keep=batch.logits_index,
            sluice_batch=batch,
            sluice_cache=self.cache,
            **options,
        )

    def _erase(self, batch: Batch, sampled: Sampled) -> None:
        """Zero the KV of rejected drafts whose output is NaN. Their positions are masked until they are overwritten,
        and a masked NaN is still NaN (`model/kv_cache.py`).
        """
        broken = [row for row, token in enumerate(sampled.tokens) if token == NOT_A_NUMBER]
        if broken:
            for each in (batch, *batch.others):
                self.cache.erase(each.slot_mapping[batch.logits_index[broken]])


def _fill(ids: torch.Tensor, places: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
    """Write the tokens to these places of ids [1, T]. On a CPU numpy takes a tenth of torch's time."""
    if ids.device.type == "cpu":
        ids.numpy()[0, places] = tokens
    else:
        ids[0, torch.from_numpy(places).to(ids.device)] = torch.from_numpy(tokens).to(ids.device)


def _holders(gathered: Sequence[GatheredRows], blocks: Collection[int]) -> list[str]:
    """Request ids of the rows whose block table contains one of these blocks."""
    wanted = np.fromiter(blocks, dtype=np.int64, count=len(blocks))
    return [
        group.rows[place].request_id
        for group in gathered
        for place in np.flatnonzero(np.isin(group.tables, wanted).any(axis=(0, 2))).tolist()
    ]


def _without(rows: Sequence[Row], failed: Container[str]) -> list[Row]:
    """The rows of requests that did not fail, without failed samples that share a row."""
    return [
        row._replace(forks=tuple(fork for fork in row.forks if fork.request_id not in failed)) if row.forks else row
        for row in rows
        if row.request_id not in failed
    ]


def _without_drafts(row: Row) -> Row:
    return row._replace(tokens=row.tokens[: len(row.tokens) - row.drafts], drafts=0) if row.drafts else row
