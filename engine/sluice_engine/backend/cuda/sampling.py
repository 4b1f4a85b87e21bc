"""Sampling parameters on the device by slot, for the requests that the sampling kernel serves without the host.

It serves greedy and random sampling with temperature, min-p, top-k and top-p; the steps of other requests are sampled by
the engine's sampler (`sampling/sampler.py`).
"""

import numpy as np
import torch

from sluice_engine.sampling.params_table import SlotTable
from sluice_engine.sampling_params import SamplingParams
from sluice_kernels.sample import Draws, Rows


def needs_host(sampling: SamplingParams) -> bool:
    """True if a request uses a feature that only the engine's sampler has."""
    return bool(
        sampling.has_penalties
        or sampling.logit_bias
        or sampling.min_tokens > 0
        or sampling.logprobs is not None
        or sampling.bad_words
        or sampling.grammar is not None
    )


class DeviceSampling:
    """Columns by slot and the last sampled token of each; the slot after the last one is for padding rows."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self.padding_slot = slots
        count = slots + 1

        def column(dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(count, dtype=dtype, device=device)

        self.draws = Draws(
            temperature=column(torch.float32),
            min_p=column(torch.float32),
            top_k=column(torch.int32),
            top_p=column(torch.float64).fill_(1.0),
            seeds=column(torch.int64),
        )
        self.last = column(torch.int64)

    def addresses(self) -> tuple[int, ...]:
        """Of all tensors."""
        draws = self.draws
        columns = (draws.temperature, draws.min_p, draws.top_k, draws.top_p, draws.seeds, self.last)
        return tuple(each.data_ptr() for each in columns)

    def upload(self, table: SlotTable) -> None:
        """Copy the parameters of all slots to the device."""
        for target, source in (
            (self.draws.temperature, table.temperature),
            (self.draws.min_p, table.min_p),
            (self.draws.top_k, table.top_k.astype(np.int32)),
            (self.draws.top_p, table.top_p),
            (self.draws.seeds, table.seed.view(np.int64)),
        ):
            target[: self.padding_slot].copy_(torch.from_numpy(source), non_blocking=True)

    def rows(self, sequences: torch.Tensor, positions: torch.Tensor) -> Rows:
        """The rows of a decode step, sequences [R] and positions [R] int64: a row samples the token after its own."""
        return Rows(sequences.to(torch.int32), positions + 1)

    def remember(self, sequences: torch.Tensor, tokens: torch.Tensor) -> None:
        """Store the sampled tokens [R] by slot; a row without one stores token 0 until its request fails."""
        self.last.index_copy_(0, sequences, tokens.clamp(min=0))
