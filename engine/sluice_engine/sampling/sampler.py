"""A token per row of logits, with whatever each row's request asked for; nothing that no row asked for is computed.

Order: logprobs from the raw logits; logit bias and barred stop tokens; penalties; then the largest score, or for a
temperature above 0 a draw after temperature, min-p, top-k and top-p. A request with draft tokens has a row for each
of them and one more: `verify.py` says which of the rows stand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.request import Sampling, TokenLogprob
from sluice_engine.sampling.counter import uniform
from sluice_engine.sampling.draw import draw, scaled, weights_of
from sluice_engine.sampling.edits import Edits
from sluice_engine.sampling.logprobs import logprobs_of
from sluice_engine.sampling.penalties import Penalties
from sluice_engine.sampling.slots import EDITED, LOGPROBS, PENALISED, RANDOM, TRUNCATED, SlotTable
from sluice_engine.sampling.truncate import draw_truncated
from sluice_engine.sampling.verify import NO_TOKEN, Drafts

NOT_A_NUMBER = NO_TOKEN  # in place of a token where the row's logits hold no usable number


@dataclass(slots=True)
class Sampled:
    """A token per row; for rows that asked for them, logprobs by row. `kept`, where tokens were drafted: the rows that
    stand. The others' tokens mean nothing, and they have neither logprobs nor a part in any count."""

    tokens: list[int]
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    kept: NDArray[np.bool_] | None = None


class Sampler:
    """Parameters and counts of `slots` slots over logits of `width` entries."""

    def __init__(self, slots: int, width: int, device: torch.device) -> None:
        self._device = device
        self._table = SlotTable(slots)
        self._edits = Edits(width)
        self._penalties = Penalties(slots, width, device)

    def join(self, slot: int, sampling: Sampling, known: Sequence[int] = (), prompt_length: int = 0) -> None:
        """A request begins to run in `slot`; with penalties, `known` is its prompt and what it has generated."""
        self._table.join(slot, sampling)
        self._edits.join(slot, sampling)
        if sampling.remembers:
            self._penalties.join(slot, known, prompt_length)

    def sample(
        self,
        logits: torch.Tensor,
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        samples: NDArray[np.bool_] | None = None,
        drafts: Drafts | None = None,
    ) -> Sampled:
        """Choose for logits [N, V]: row i is of the request in slots[i] and chooses its token number positions[i].

        A row that does not sample (samples[i] false) gets its largest score, only to see that it is a number.
        NOT_A_NUMBER for a row with NaN, with +∞ or without any finite score.
        """
        table = self._table
        flags = table.flags[slots]
        if samples is not None:
            flags = np.where(samples, flags, 0).astype(np.uint8)
        used = int(np.bitwise_or.reduce(flags))
        scores = logits.float()
        if used & (EDITED | PENALISED):
            scores = self._adjusted(scores, logits, used, flags, slots, positions, drafts)
        chosen, usable = _largest(scores)
        if used & RANDOM:
            for rows in _groups(flags, usable):
                chosen[rows] = self._drawn(scores, rows, slots[rows], positions[rows], int(flags[rows[0]]))
        chosen[~usable] = NOT_A_NUMBER
        kept = None if drafts is None else drafts.kept(chosen)
        counting = usable if kept is None else usable & kept
        logprobs: dict[int, TokenLogprob] = {}
        if used & LOGPROBS:
            rows = np.flatnonzero((flags & LOGPROBS).astype(bool) & counting)
            if len(rows):
                found = logprobs_of(logits[self._tensor(rows)], self._tensor(chosen[rows]), table.logprobs[slots[rows]])
                logprobs = dict(zip(rows.tolist(), found, strict=True))
        if used & PENALISED:  # last: whatever raises before leaves the counts as they were, and the rows may run again
            rows = np.flatnonzero((flags & PENALISED).astype(bool) & counting)
            self._penalties.add(self._tensor(slots[rows]), self._tensor(chosen[rows]))
        return Sampled(chosen.tolist(), logprobs, kept)

    def _adjusted(
        self,
        scores: torch.Tensor,
        logits: torch.Tensor,
        used: int,
        flags: NDArray[np.uint8],
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        drafts: Drafts | None,
    ) -> torch.Tensor:
        """Scores with edits and penalties; the logits stay as the model gave them."""
        if scores is logits:
            scores = scores.clone()
        if used & EDITED:
            rows = np.flatnonzero(flags & EDITED)
            self._edits.apply(scores, rows.tolist(), slots[rows].tolist(), positions[rows].tolist())
        if used & PENALISED:
            rows = np.flatnonzero(flags & PENALISED)
            of = slots[rows]
            supposed = None if drafts is None else drafts.supposed(rows)
            self._penalties.apply(
                scores,
                self._tensor(rows),
                self._tensor(of),
                repetition=self._tensor(self._table.repetition[of]),
                frequency=self._tensor(self._table.frequency[of]),
                presence=self._tensor(self._table.presence[of]),
                supposed=None if supposed is None else (self._tensor(supposed[0]), self._tensor(supposed[1])),
            )
        return scores

    def _drawn(
        self,
        scores: torch.Tensor,
        rows: NDArray[np.int64],
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        flags: int,
    ) -> NDArray[np.int64]:
        table = self._table
        picked = scaled(scores[self._tensor(rows)], self._column(table.temperature[slots]))
        min_p = self._column(table.min_p[slots])
        draws = self._column(uniform(table.seed[slots], positions))
        if flags & TRUNCATED:
            top_k, top_p = self._column(table.top_k[slots]), self._column(table.top_p[slots])
            ids = draw_truncated(picked, min_p, top_k, top_p, draws)
        else:
            ids = draw(weights_of(picked, min_p) if table.min_p[slots].any() else picked.exp_(), draws)
        result: NDArray[np.int64] = ids[:, 0].cpu().numpy()
        return result

    def _tensor(self, array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)

    def _column(self, array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array[:, None]).to(self._device)


def _largest(scores: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The largest score's column per row, the lowest one of a tie, and whether that score is a finite number.

    NaN counts as largest, so a row with NaN shows. On the processor numpy finds it 25 times as fast as torch.
    """
    if scores.device.type == "cpu":
        table = scores.numpy()
        chosen = table.argmax(axis=-1)
        best = table[np.arange(len(table)), chosen]
    else:
        values, places = scores.max(dim=-1)
        chosen, best = places.cpu().numpy(), values.cpu().numpy()
    return chosen, np.isfinite(best)


def _groups(flags: NDArray[np.uint8], usable: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Rows that draw, those that need an order apart from those that do not."""
    random = (flags & RANDOM).astype(bool) & usable
    truncated = (flags & TRUNCATED).astype(bool)
    return [rows for rows in (np.flatnonzero(random & ~truncated), np.flatnonzero(random & truncated)) if len(rows)]
