"""Runs decode steps as graphs, two in flight: a step is enqueued before the results of the preceding one are read.

The last tokens are on the device, so a step needs no result of the preceding one from the host. All other steps (with
chunks, joins, drafts, block copies, or a feature of the host's sampler) are executed as in `backend/runner.py`, when the
preceding one has ended.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from sluice_engine.backend.cuda.buffers import HOST_SETS, BufferShape, DecodeBuffers
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.device_queue import DeviceQueue, Wait
from sluice_engine.backend.cuda.graphs import Capture, DecodeGraphs, graph_sizes
from sluice_engine.backend.cuda.ops import KERNELS, Ops
from sluice_engine.backend.cuda.readback import Readback
from sluice_engine.backend.cuda.sampling import DeviceSampling, needs_host
from sluice_engine.backend.cuda.step_tensors import table_width
from sluice_engine.backend.failure_isolation import check_device
from sluice_engine.backend.runner import NOT_FINITE, PreparedStep, Runner, StepResult
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.kv_cache import KVCache
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.scheduler import PENDING, Plan

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """The static tensors of decode steps, and what computes on them."""

    decoder: FusedDecoder
    cache: KVCache
    buffers: DecodeBuffers
    sampling: DeviceSampling
    readback: Readback
    ops: Ops = KERNELS

    @torch.inference_mode()
    def __call__(self, size: int) -> None:
        """Compute and sample the first `size` rows. It reads and writes static tensors only."""
        step = self.buffers.step(size, self.sampling.last)
        logits = self.decoder.logits(step, self.cache)
        sequences = self.buffers.sequences(size)
        tokens = self.ops.sample(logits, self.sampling.rows(sequences, step.positions), self.sampling.draws)
        self.sampling.remember(sequences, tokens)
        self.readback.sampled[:size].copy_(tokens)

    def addresses(self) -> tuple[int, ...]:
        """Of all static tensors."""
        return (*self.buffers.addresses(), *self.sampling.addresses(), self.readback.sampled.data_ptr())


@dataclass(slots=True)
class PendingDecode:
    """A prepared decode step; `wait` is set once it is enqueued. `early`: it was enqueued when it was prepared."""

    number: int
    step: PreparedStep
    wait: Wait | None = None
    early: bool = False


class GraphRunner(Runner):
    """A runner whose decode steps are graphs. `prepare` enqueues such a step if the preceding one was enqueued; otherwise
    it is enqueued as soon as that one has ended.
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
        sampling = DeviceSampling(config.max_num_seqs, model.device)
        buffers = DecodeBuffers(shape, model.device, sampling.padding_slot, config.block_size)
        readback = Readback(config.max_num_seqs, model.device)
        self.decode_step = DecodeStep(decoder, self.cache, buffers, sampling, readback)
        self.graphs = DecodeGraphs(self.decode_step, graph_sizes(config.max_num_seqs), capture)
        self._queue = queue
        self._prepared = self._enqueued = 0  # steps so far; the second follows the first
        self._decoded = False  # the step enqueued last was a decode step, so the device has its tokens
        self._host_sampled = np.zeros(config.max_num_seqs, dtype=np.bool_)  # by slot
        self._columns_changed = True
        self._deferred: PendingDecode | None = None  # prepared while a step that runs alone had not ended
        self._failed = 0  # number of the last decode step that failed on the device

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """Enqueue a decode step, or convert another plan to tensors; the returned callable gives its results."""
        self._prepared += 1
        number = self._prepared
        for join in plan.joins:
            self._host_sampled[join.slot] = needs_host(join.sampling)
        if not self._decodes(plan):
            return partial(self._alone, number, plan, super().prepare(plan))
        pending = PendingDecode(number, self._gathered(plan))
        if self._enqueued == number - 1:
            pending.wait, pending.early = self._enqueue(pending.step, number), True
        else:
            self._deferred = pending
        return partial(self._decode, pending)

    def _decodes(self, plan: Plan) -> bool:
        """True if the plan is a decode step that needs nothing of the host."""
        if plan.joins or plan.scrub or plan.copies or not plan.certain:
            return False
        return not any(
            len(row.tokens) != 1 or not row.samples or row.targets or self._host_sampled[row.slot] for row in plan.rows
        )

    def _alone(self, number: int, plan: Plan, execute: Callable[[], StepResult]) -> StepResult:
        """Execute a step while no other is in flight."""
        try:
            return execute()
        finally:
            self._columns_changed |= bool(plan.joins)
            self._decoded, self._enqueued = False, number
            following, self._deferred = self._deferred, None
            if following is not None and following.number == number + 1:
                following.wait = self._enqueue(following.step, following.number)

    def _enqueue(self, step: PreparedStep, number: int) -> Wait | None:
        """Enqueue a decode step. None if that is not possible: it is then executed alone."""
        if step.errors or len(step.gathered) != 1:
            return None
        rows, index = step.gathered[0], number % HOST_SETS
        tokens = np.array([row.tokens[0] for row in rows.rows], dtype=np.int64)
        pending = tokens == PENDING
        if ((tokens < 0) & ~pending | (tokens >= self.model.vocab_size)).any():
            return None
        if not self._decoded:
            tokens[pending] = self._last[rows.slots[pending]]
        size = self.graphs.size_for(len(tokens))
        body = self.decode_step
        try:
            body.buffers.write(index, rows, tokens, size)
            if self._columns_changed:
                self._queue.put(partial(body.sampling.upload, self._sampler.table))
            self._queue.put(partial(body.buffers.upload, index, size))
            self._queue.put(partial(self.graphs.replay, size))
            self._queue.put(partial(body.readback.download, index, size))
            wait = self._queue.mark()
        except self.model.faults:  # the step is executed alone, which isolates the failing rows
            _log.exception("a decode step of %d rows could not be enqueued", len(tokens))
            return None
        self._columns_changed = False
        self._decoded, self._enqueued = True, number
        return wait

    def _decode(self, pending: PendingDecode) -> StepResult:
        """The results of a decode step. Raises RuntimeError if the accelerator is lost."""
        number, step = pending.number, pending.step
        wait = pending.wait or self._enqueue(step, number)
        if wait is None:
            return self._alone(number, step.plan, partial(self._execute, step))
        try:
            wait()
        except self.model.faults:  # one request's failure must not stop the loop
            _log.exception("a decode step of %d rows failed; running it alone", len(step.plan.rows))
            self._failed = number
        # A step enqueued behind a failed one read tokens that the failed one did not sample.
        if self._failed == number or (self._failed == number - 1 and pending.early):
            return self._alone(number, step.plan, partial(self._execute, step))
        rows = step.gathered[0]
        tokens = self.decode_step.readback.read(number % HOST_SETS, len(rows.rows))
        self._last[rows.slots] = np.maximum(tokens, 0)
        result = StepResult(tokens.tolist())
        result.errors = {row.request_id: NOT_FINITE for row, token in zip(rows.rows, tokens, strict=True) if token < 0}
        if len(result.errors) == len(rows.rows):
            check_device(self.model.device)
        return result
