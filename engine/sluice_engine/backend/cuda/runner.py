"""Runs decode steps as graphs, two in flight: a step is enqueued before the results of the preceding one are read.

The last tokens are on the device, so a step needs no result of the preceding one from the host. Its graph computes logits,
and a few launches behind it sample them. Of a step with grammars or bad words the graph is enqueued early too; its sampling
follows when the preceding tokens are known and the masks computed, while the device computes the logits. vLLM's asynchronous
scheduling divides such a step the same way (`execute_model` and `sample_tokens`).

All other steps (with chunks, joins, drafts or block copies) are executed as in `backend/runner.py`, when the preceding one
has ended.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.buffers import HOST_SETS, BufferShape, DecodeBuffers
from sluice_engine.backend.cuda.decode_step import DecodeStep
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.device_queue import DeviceQueue, Stamp, Wait
from sluice_engine.backend.cuda.graphs import Capture, DecodeGraphs, graph_sizes
from sluice_engine.backend.cuda.readback import LOGPROB_COUNTS, Readback
from sluice_engine.backend.cuda.sampling.columns import DeviceSampling
from sluice_engine.backend.cuda.sampling.offsets import WideOffsets
from sluice_engine.backend.cuda.step_tensors import table_width
from sluice_engine.backend.failure_isolation import check_device
from sluice_engine.backend.runner import NOT_FINITE, PreparedStep, Runner, StepResult
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling import NOT_A_NUMBER
from sluice_engine.sampling.grammar_masks import PackedMasks
from sluice_engine.sampling.mask_source import Broadcast
from sluice_engine.sampling.params_table import EDITED, GRAMMAR, LOGPROBS, PENALISED, WORDED
from sluice_engine.sampling_params import MAX_LOGPROBS
from sluice_engine.scheduler import PENDING, Plan

_MASKED = GRAMMAR | WORDED  # a step with one of these waits for the preceding tokens before it is sampled
_ADJUSTED = PENALISED | EDITED | _MASKED  # a step with one of these samples other scores than its logits
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PendingDecode:
    """A prepared decode step. `size`: of its graph, once that is enqueued; `wait`: once its sampling is, too. `early`: the
    graph was enqueued before the preceding step had ended. `logprobs`: top tokens of its sampling. `faults`: row → why its
    grammar failed. `end`: on the device's clock.
    """

    number: int
    step: PreparedStep
    size: int | None = None
    wait: Wait | None = None
    early: bool = False
    logprobs: int = 0
    faults: dict[int, str] | None = None
    end: Stamp | None = None


class GraphRunner(Runner):
    """A runner whose decode steps are graphs. `prepare` enqueues such a step if the preceding one was enqueued completely;
    otherwise it is enqueued as soon as that one is, or has ended.
    """

    def __init__(
        self, model: LoadedModel, decoder: FusedDecoder, config: CacheConfig, queue: DeviceQueue, capture: Capture
    ) -> None:
        super().__init__(
            model,
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            host_blocks=config.host_blocks,
        )
        groups = len(model.kv_shape.groups.windows)
        width = table_width(-(-model.max_model_length // config.block_size))
        # Steps that are no graphs have tables as wide: then they split contexts as the graphs do, by the same kernels.
        self._batch_builder.table_blocks = width
        shape = BufferShape(config.max_num_seqs, width, groups)
        sampling = DeviceSampling.allocated(config.max_num_seqs, model.vocab_size, model.device)
        self._sampler.share_counts(sampling.penalties.counts, sampling.penalties.seen)
        buffers = DecodeBuffers(shape, model.device, sampling.padding_slot, config.block_size)
        readback = Readback(config.max_num_seqs, min(MAX_LOGPROBS, model.vocab_size), model.device)
        decoder.compile_experts()
        logits = torch.zeros((config.max_num_seqs, model.vocab_size), dtype=model.dtype, device=model.device)
        self.decode_step = DecodeStep(decoder, self.cache, buffers, sampling, readback, logits)
        self._logprob_counts = [count for count in LOGPROB_COUNTS if count <= model.vocab_size]
        self.graphs = DecodeGraphs(self.decode_step, graph_sizes(config.max_num_seqs), capture)
        self._compile_sampling(config.max_num_seqs)
        self._order = threading.Lock()  # of what is enqueued: steps are prepared and executed by two threads
        self._queue = queue
        self._prepared = self._enqueued = 0  # steps so far; the second follows the first
        self._decoded = False  # the step enqueued last was a decode step, so the device has its tokens
        self._columns_changed = True
        self._deferred: PendingDecode | None = None  # prepared while a step that runs alone had not ended
        self._last_end: tuple[int, Stamp | None] = (0, None)  # of the last decode step, and its number
        self._failed = 0  # number of the last decode step that failed on the device

    def _compile_sampling(self, size: int) -> None:
        """Compile what is launched behind the graphs."""
        step, device = self.decode_step, self.model.device
        step.sample(size, adjusted=False)
        step.sample(size, adjusted=True)
        none = torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, device=device)
        step.sample(size, adjusted=True, wide=[WideOffsets(0, *none)])  # float32 logits
        for count in self._logprob_counts:
            step.sample(size, adjusted=False, logprobs=count)

    def share_masks(self, broadcast: Broadcast, *, leads: bool) -> None:
        """See `Runner`."""
        super().share_masks(broadcast, leads=leads)
        self.decode_step.sampling.masks.share = broadcast

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """Enqueue a decode step, or convert another plan to tensors; the returned callable gives its results."""
        self._prepared += 1
        number = self._prepared
        if not self._decodes(plan):
            return partial(self._alone, number, plan, super().prepare(plan))
        pending = PendingDecode(number, self._gathered(plan))
        with self._order:
            if self._enqueued == number - 1:
                self._enqueue(pending)
                pending.early = pending.size is not None
            else:
                self._deferred = pending
        return partial(self._decode, pending)

    def _decodes(self, plan: Plan) -> bool:
        """True if each row of the plan samples the token after its only one."""
        if plan.joins or plan.scrub or plan.copies or not plan.certain:
            return False
        return not any(len(row.tokens) != 1 or not row.samples or row.targets for row in plan.rows)

    def _alone(self, number: int, plan: Plan, execute: Callable[[], StepResult]) -> StepResult:
        """Execute a step while no other is in flight."""
        try:
            return execute()
        finally:
            with self._order:
                self._columns_changed |= bool(plan.joins)
                for join in plan.joins:
                    self.decode_step.sampling.offsets.join(join.slot, self._sampler.offsets(join.slot))
                self._decoded, self._enqueued = False, number
                self._enqueue_deferred(number + 1)

    def _enqueue_deferred(self, number: int) -> PendingDecode | None:
        """Enqueue the deferred step if it is this one."""
        following, self._deferred = self._deferred, None
        if following is None or following.number != number:
            return None
        self._enqueue(following)
        return following

    def _enqueue(self, pending: PendingDecode) -> None:
        """Enqueue a decode step: its graph, and its sampling unless that has to wait for masks."""
        self._enqueue_graph(pending)
        if pending.size is not None and not self._flags(pending) & _MASKED:
            self._enqueue_sampling(pending)

    def _flags(self, pending: PendingDecode) -> int:
        """The features of the sampler that rows of a step use."""
        return int(np.bitwise_or.reduce(self._sampler.table.flags[pending.step.gathered[0].slots]))

    def _enqueue_graph(self, pending: PendingDecode) -> None:
        """Enqueue the graph of a decode step, if that is possible."""
        step = pending.step
        if step.errors or len(step.gathered) != 1:
            return
        rows, index = step.gathered[0], pending.number % HOST_SETS
        tokens = np.array([row.tokens[0] for row in rows.rows], dtype=np.int64)
        unknown = tokens == PENDING
        if ((tokens < 0) & ~unknown | (tokens >= self.model.vocab_size)).any():
            return
        if not self._decoded:
            tokens[unknown] = self._last[rows.slots[unknown]]
        size = self.graphs.size_for(len(tokens))
        body = self.decode_step
        try:
            body.buffers.write(index, rows, tokens, size)
            self._queue.put(partial(body.buffers.upload, index, size))
            self._queue.put(partial(self.graphs.replay, size))
        except self.model.faults:  # the step is executed alone, which isolates the failing rows
            _log.exception("a decode step of %d rows could not be enqueued", len(tokens))
            return
        pending.size = size

    def _enqueue_sampling(self, pending: PendingDecode, masks: PackedMasks | None = None) -> None:
        """Enqueue the sampling of a step whose graph is enqueued, if that is possible."""
        rows, index, size = pending.step.gathered[0], pending.number % HOST_SETS, pending.size
        if size is None:
            return
        adjusted = bool(self._flags(pending) & _ADJUSTED)
        body, sampling = self.decode_step, self.decode_step.sampling
        try:
            if self._columns_changed:
                self._queue.put(partial(sampling.upload, self._sampler.table))
            if adjusted:
                sampling.offsets.advance(rows.slots, rows.starts + 1)
                sampling.offsets.upload(self._queue)
                count = 0 if masks is None else sampling.masks.write(index, masks)
                self._queue.put(partial(sampling.masks.upload, index, count, size))
            wide = sampling.offsets.wide(rows.slots) if adjusted else []
            logprobs = pending.logprobs = self._logprobs(rows.slots)
            self._queue.put(partial(body.sample, size, adjusted=adjusted, logprobs=logprobs, wide=wide))
            self._queue.put(partial(body.readback.download, index, size, logprobs))
            pending.end = self._queue.stamp()
            pending.wait = self._queue.mark()
        except self.model.faults:
            _log.exception("the sampling of %d rows could not be enqueued", len(rows.rows))
            return
        pending.faults = None if masks is None else masks.faults
        self._columns_changed = False
        self._decoded, self._enqueued = True, pending.number

    def _logprobs(self, slots: NDArray[np.int64]) -> int:
        """How many top tokens the rows in these slots need of their step; 0 if none has logprobs."""
        table = self._sampler.table
        asked = table.logprobs[slots[(table.flags[slots] & LOGPROBS) != 0]]
        if not len(asked):
            return 0
        most = min(int(asked.max()), self.model.vocab_size)
        return next((count for count in self._logprob_counts if count >= most), most)

    def _complete(self, pending: PendingDecode) -> None:
        """Enqueue what is not enqueued of a step whose preceding step has ended, and the one behind it."""
        with self._order:
            if pending.size is None:
                self._enqueue(pending)
        if pending.size is not None and pending.wait is None:
            masks = self._sampler.packed_masks(pending.step.gathered[0].slots)
            with self._order:
                self._enqueue_sampling(pending, masks)
        with self._order:
            if pending.wait is not None and (following := self._enqueue_deferred(pending.number + 1)) is not None:
                following.early = following.size is not None

    def _decode(self, pending: PendingDecode) -> StepResult:
        """The results of a decode step. Raises RuntimeError if the accelerator is lost."""
        number, step = pending.number, pending.step
        # A step enqueued behind a failed one read tokens that the failed one did not sample.
        behind_failed = self._failed == number - 1 and pending.early
        if not behind_failed:
            self._complete(pending)
        if not self._ended(pending) or behind_failed:
            return self._again(pending)
        rows = step.gathered[0]
        tokens = self.decode_step.readback.read(number % HOST_SETS, len(rows.rows))
        for row in pending.faults or ():
            tokens[row] = NOT_A_NUMBER
        self._last[rows.slots] = np.maximum(tokens, 0)
        self._sampler.note(rows.slots, tokens)
        result = StepResult(tokens.tolist(), seconds=self._seconds(pending))
        result.logprobs = self._scored(pending, tokens)
        failed = np.flatnonzero(tokens == NOT_A_NUMBER).tolist()
        result.errors = {rows.rows[row].request_id: (pending.faults or {}).get(row, NOT_FINITE) for row in failed}
        if len(result.errors) == len(rows.rows):
            check_device(self.model.device)
        return result

    def _scored(self, pending: PendingDecode, tokens: NDArray[np.int64]) -> dict[str, tuple[TokenLogprob, ...]]:
        """The logprobs of the sampled tokens by request, of a step that has ended."""
        size, rows, table = pending.size, pending.step.gathered[0], self._sampler.table
        if size is None or not pending.logprobs:
            return {}
        scored = np.flatnonzero((table.flags[rows.slots] & LOGPROBS != 0) & (tokens != NOT_A_NUMBER))
        counts = zip(scored.tolist(), table.logprobs[rows.slots[scored]].tolist(), strict=True)
        found = self.decode_step.readback.logprobs(pending.number % HOST_SETS, size, pending.logprobs, counts)
        return {rows.rows[row].request_id: (logprob,) for row, logprob in found.items()}

    def _seconds(self, pending: PendingDecode) -> float | None:
        """Seconds since the end of the preceding decode step by the device's clock; None if the device waited for the host
        in between, or has no clock.
        """
        (number, before), self._last_end = self._last_end, (pending.number, pending.end)
        if not pending.early or number != pending.number - 1 or before is None or pending.end is None:
            return None
        return pending.end.since(before)

    def _ended(self, pending: PendingDecode) -> bool:
        """Wait for a step. False if it was not enqueued completely or failed on the device."""
        if pending.wait is None:
            return False
        try:
            pending.wait()
        except self.model.faults:  # one request's failure must not stop the loop
            _log.exception("a decode step of %d rows failed; running it alone", len(pending.step.plan.rows))
            self._failed = pending.number
            return False
        return True

    def _again(self, pending: PendingDecode) -> StepResult:
        """Execute a decode step alone, after what was enqueued for it in vain."""
        if pending.size is not None and pending.wait is None:
            try:
                self._queue.mark()()
            except self.model.faults:
                _log.exception("a decode step of %d rows failed; running it alone", len(pending.step.plan.rows))
        self._sampler.recount({row.slot for row in pending.step.plan.rows})
        return self._alone(pending.number, pending.step.plan, partial(self._execute, pending.step))
