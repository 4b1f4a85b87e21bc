"""One decode step on static tensors: the part that is captured as a graph, and the sampling that is launched behind it.

Sampling is not captured, because the masks of grammars are known only when the preceding step has ended, and because a step
without penalties, offsets and masks needs fewer launches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from sluice_engine.backend.cuda.buffers import DecodeBuffers
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.ops import KERNELS, Ops
from sluice_engine.backend.cuda.readback import Readback
from sluice_engine.backend.cuda.sampling.columns import DeviceSampling
from sluice_engine.backend.cuda.sampling.logprobs import write_logprobs
from sluice_engine.backend.cuda.sampling.offsets import WideOffsets, with_offsets
from sluice_engine.model.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """The static tensors of decode steps, and what computes on them. No method reads a value on the host."""

    decoder: FusedDecoder
    cache: KVCache
    buffers: DecodeBuffers
    sampling: DeviceSampling
    readback: Readback
    scores: torch.Tensor  # [rows, V]: the logits of a step
    ops: Ops = KERNELS

    @torch.inference_mode()
    def __call__(self, size: int) -> None:
        """Compute the logits of the first `size` rows. It reads and writes static tensors only."""
        step = self.buffers.step(size, self.sampling.last)
        self.scores[:size].copy_(self.decoder.logits(step, self.cache))

    @torch.inference_mode()
    def sample(self, size: int, *, adjusted: bool, logprobs: int = 0, wide: Sequence[WideOffsets] = ()) -> None:
        """Sample the first `size` rows of the logits. `adjusted`: with penalties, offsets and masks; the sampled tokens are
        counted. `wide`: rows whose offsets the table does not hold. `logprobs`: so many top tokens; 0: no logprobs.
        """
        sampling, sequences = self.sampling, self.buffers.sequences(size)
        logits, rows = self.scores[:size], sampling.rows(sequences, self.buffers.positions(size))
        if adjusted:
            rows = replace(rows, mask=sampling.masks.words[:size])
            scores = with_offsets(logits, wide) if wide else logits
            tokens = self.ops.sample(scores, rows, sampling.draws, sampling.penalties, sampling.offsets.bias)
            sampling.count(sequences, tokens)
        else:
            tokens = self.ops.sample(logits, rows, sampling.draws)
        sampling.remember(sequences, tokens)
        self.readback.sampled[:size].copy_(tokens)
        if logprobs:
            write_logprobs(logits, tokens, *self.readback.scored(size, logprobs))

    def addresses(self) -> tuple[int, ...]:
        """Of all static tensors."""
        parts = (self.buffers, self.sampling, self.readback)
        return (*(each for part in parts for each in part.addresses()), self.scores.data_ptr())
