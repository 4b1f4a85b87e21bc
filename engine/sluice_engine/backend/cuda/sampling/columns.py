"""Sampling on the device: every tensor that the kernel `sample` reads, by slot or by row, and what a step updates itself.

A step without penalties, offsets and masks is sampled from the logits as they are. The engine's sampler
(`sampling/sampler.py`), which samples all other steps, counts tokens in the same tensors.
"""

from dataclasses import dataclass

import numpy as np
import torch

from sluice_engine.backend.cuda.sampling.masks import DeviceMasks
from sluice_engine.backend.cuda.sampling.offsets import DeviceOffsets
from sluice_engine.sampling.params_table import SlotTable
from sluice_kernels.sample import Draws, Penalties, Rows


@dataclass(frozen=True, slots=True)
class DeviceSampling:
    """Columns by slot and the last sampled token of each; the slot after the last one is for padding rows."""

    padding_slot: int
    draws: Draws
    last: torch.Tensor  # [slots] int64
    penalties: Penalties
    offsets: DeviceOffsets
    masks: DeviceMasks

    @classmethod
    def allocated(cls, slots: int, vocabulary: int, device: torch.device) -> "DeviceSampling":
        """For `slots` requests, as many rows in a step, and logits of `vocabulary` entries. All parameters are neutral."""
        count = slots + 1

        def column(dtype: torch.dtype, value: float = 0.0) -> torch.Tensor:
            return torch.full((count,), value, dtype=dtype, device=device)

        draws = Draws(
            temperature=column(torch.float32),
            min_p=column(torch.float32),
            top_k=column(torch.int32),
            top_p=column(torch.float64, 1.0),
            seeds=column(torch.int64),
        )
        penalties = Penalties(
            counts=torch.zeros((count, vocabulary), dtype=torch.int32, device=device),
            seen=torch.zeros((count, vocabulary), dtype=torch.bool, device=device),
            repetition=column(torch.float32, 1.0),
            frequency=column(torch.float32),
            presence=column(torch.float32),
        )
        offsets, masks = DeviceOffsets(count, device), DeviceMasks(slots, vocabulary, device)
        return cls(slots, draws, column(torch.int64), penalties, offsets, masks)

    def addresses(self) -> tuple[int, ...]:
        """Of all tensors."""
        draws, penalties = self.draws, self.penalties
        columns = (
            draws.temperature, draws.min_p, draws.top_k, draws.top_p, draws.seeds, self.last,
            penalties.counts, penalties.seen, penalties.repetition, penalties.frequency, penalties.presence,
            *self.offsets.tensors, *self.masks.tensors,
        )  # fmt: skip
        return tuple(each.data_ptr() for each in columns)

    def upload(self, table: SlotTable) -> None:
        """Copy the parameters of all slots to the device."""
        for target, source in (
            (self.draws.temperature, table.temperature),
            (self.draws.min_p, table.min_p),
            (self.draws.top_k, table.top_k.astype(np.int32)),
            (self.draws.top_p, table.top_p),
            (self.draws.seeds, table.seed.view(np.int64)),
            (self.penalties.repetition, table.repetition),
            (self.penalties.frequency, table.frequency),
            (self.penalties.presence, table.presence),
        ):
            target[: self.padding_slot].copy_(torch.from_numpy(source), non_blocking=True)

    def rows(self, sequences: torch.Tensor, positions: torch.Tensor) -> Rows:
        """The rows of a decode step, sequences [R] and positions [R] int64: a row samples the token after its own."""
        return Rows(sequences.to(torch.int32), positions + 1)

    def remember(self, sequences: torch.Tensor, tokens: torch.Tensor) -> None:
        """Store the sampled tokens [R] by slot; a row without one stores token 0 until its request fails."""
        self.last.index_copy_(0, sequences, tokens.clamp(min=0))

    def count(self, sequences: torch.Tensor, tokens: torch.Tensor) -> None:
        """Count the sampled tokens [R] of their slots, which may be any: those of a request without penalties are counted
        anew when the slot gets one with them.
        """
        counts, seen = self.penalties.counts, self.penalties.seen
        places = sequences * counts.shape[1] + tokens.clamp(min=0)
        counts.view(-1).index_add_(0, places, (tokens >= 0).to(torch.int32))
        seen.view(-1).index_fill_(0, places, True)
