"""The flat batch of pooling requests: whole texts side by side, without padding.

Nothing is cached between steps, so a text is computed completely in one step. All layers except attention run over the
flat tokens without any padding. Attention runs over groups of texts of similar length, padded to the group's longest.
Groups are cut so that padding stays below MAX_PADDING of the real tokens for any lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

MAX_PADDING = 0.05  # padded over real attention rows, per group and therefore per step


@dataclass(slots=True)
class LengthGroup:
    """R texts of at most Q tokens, adjacent in the flat batch."""

    first: int  # index of the group's first token
    tokens: int
    rows: int
    longest: int  # Q
    lengths: torch.Tensor  # [R] int64
    padded_index: torch.Tensor | None  # [tokens] int64 into R·Q; None when all texts have the same length
    masks: dict[tuple[bool, int | None, torch.dtype], torch.Tensor] = field(default_factory=dict)  # built once

    def mask(self, causal: bool, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """0 where a token attends and -inf elsewhere, broadcastable to [R, 1, Q, Q]; None if every token attends to
        all.

        `window`: attended positions are less than this far away, the token's own included; on both sides unless
        `causal`.
        """
        if self.padded_index is None and not causal and window is None:
            return None
        cached = self.masks.get((causal, window, dtype))
        if cached is None:
            keys = torch.arange(self.longest, device=self.lengths.device)
            queries = keys[:, None]
            seen = (keys < self.lengths[:, None, None]) if self.padded_index is not None else keys[None, None] >= 0
            if causal:
                seen = seen & (keys <= queries)
            if window is not None:
                seen = seen & ((queries - keys).abs() < window)
            # A padded row without keys would be NaN and spread as 0 × NaN, so each attends to itself; it is dropped.
            seen = seen | (keys == queries)
            cached = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
            cached = self.masks[(causal, window, dtype)] = cached.unsqueeze(1)
        return cached


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """N texts of T tokens in total, shortest first."""

    input_ids: torch.Tensor  # [1, T] int64
    position_ids: torch.Tensor  # [1, T] int64, from 0 in each text
    token_type_ids: torch.Tensor | None  # [1, T] int64; None when all are 0
    lengths: torch.Tensor  # [N] int64
    ends: torch.Tensor  # [N] int64: end of each text in the flat batch
    groups: tuple[LengthGroup, ...]

    @property
    def computed_rows(self) -> int:
        """Rows that attention computes, padding included."""
        return sum(group.rows * group.longest for group in self.groups)


def by_length(lengths: Sequence[int]) -> list[int]:
    """The batch order of texts with these lengths: indices, shortest first."""
    return sorted(range(len(lengths)), key=lengths.__getitem__)


def pack_batch(
    texts: Sequence[Sequence[int]], token_types: Sequence[Sequence[int]], device: torch.device
) -> PackedBatch:
    """The batch of these texts, which must be in the order of `by_length` and not empty. A text without `token_types`
    has type 0 throughout.
    """
    counts = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    ends = np.cumsum(counts)
    total = int(ends[-1])
    types = None
    if any(token_types):
        given = zip(texts, token_types, strict=True)
        flat = (kind for text, kinds in given for kind in (kinds or (0,) * len(text)))
        types = _tensor(np.fromiter(flat, dtype=np.int64, count=total), device).unsqueeze(0)
    tokens = np.fromiter((token for text in texts for token in text), dtype=np.int64, count=total)
    return PackedBatch(
        input_ids=_tensor(tokens, device).unsqueeze(0),
        position_ids=_tensor(np.arange(total) - np.repeat(ends - counts, counts), device).unsqueeze(0),
        token_type_ids=types,
        lengths=_tensor(counts, device),
        ends=_tensor(ends, device),
        groups=tuple(_group(counts, first, last, ends, device) for first, last in _cuts(counts.tolist())),
    )


def pooled(hidden: torch.Tensor, batch: PackedBatch, pooling: str) -> torch.Tensor:
    """One vector per text: hidden [1, T, D] → [N, D] float32. `pooling` is "mean", "cls" or "last"."""
    flat = hidden[0]
    if pooling == "cls":
        return flat[batch.ends - batch.lengths].float()
    if pooling == "last":
        return flat[batch.ends - 1].float()
    owner = torch.repeat_interleave(batch.lengths)
    sums = torch.zeros(len(batch.lengths), flat.shape[1], device=flat.device).index_add_(0, owner, flat.float())
    return sums / batch.lengths[:, None]


def _cuts(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Groups of ascending lengths, each as large as MAX_PADDING allows: (first, end) indices."""
    cuts: list[tuple[int, int]] = []
    first = tokens = 0
    for index, length in enumerate(lengths):
        tokens += length
        if (index + 1 - first) * length > (1 + MAX_PADDING) * tokens:
            cuts.append((first, index))
            first, tokens = index, length
    return [*cuts, (first, len(lengths))]


def _group(
    counts: NDArray[np.int64], first: int, last: int, ends: NDArray[np.int64], device: torch.device
) -> LengthGroup:
    lengths = counts[first:last]
    longest = int(lengths[-1])
    inside = np.arange(longest) < lengths[:, None]
    return LengthGroup(
        first=int(ends[first] - counts[first]),
        tokens=int(lengths.sum()),
        rows=last - first,
        longest=longest,
        lengths=_tensor(lengths, device),
        padded_index=None if inside.all() else _tensor(np.flatnonzero(inside), device),
    )


def _tensor(array: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
