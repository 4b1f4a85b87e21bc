"""Samples one token per row of logits with each request's parameters; features that no row uses are not computed.

Order: logprobs from the raw logits; logit bias and barred stop tokens; penalties; bad words; grammars; then argmax, or
for a temperature above 0 a draw after temperature, min-p, top-k and top-p. A request with d draft tokens has d + 1 rows;
`draft_verify.py` decides which of them are kept.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.grammar.compiler import GrammarCompiler
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling.bad_words import BadWords
from sluice_engine.sampling.draft_verify import NO_TOKEN, Drafts
from sluice_engine.sampling.draw import draw, scaled, weights_of
from sluice_engine.sampling.grammar_masks import GrammarMasks, MaskedRow, PackedMasks, with_barred
from sluice_engine.sampling.logit_bias import Offsets, ScoreOffsets
from sluice_engine.sampling.logprobs import PromptTargets, logprobs_of, prompt_logprobs
from sluice_engine.sampling.mask_source import Broadcast, MaskSource
from sluice_engine.sampling.params_table import (
    EDITED,
    GRAMMAR,
    LOGPROBS,
    PENALISED,
    RANDOM,
    TRUNCATED,
    WORDED,
    SlotTable,
)
from sluice_engine.sampling.penalties import Penalties
from sluice_engine.sampling.rng import uniform
from sluice_engine.sampling.shared_masks import SharedMasks
from sluice_engine.sampling.top_k_top_p import draw_truncated
from sluice_engine.sampling_params import SamplingParams

NOT_A_NUMBER = NO_TOKEN  # replaces the token of a row without a finite maximum


@dataclass(slots=True)
class Sampled:
    """One token per row, and logprobs by row for requests that asked for them. `kept`, with drafts only: mask of the
    kept rows. Tokens of the other rows are meaningless; those rows have no logprobs and are not counted. `faults`: row
    with NOT_A_NUMBER → why, where its grammar failed.
    """

    tokens: list[int]
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    kept: NDArray[np.bool_] | None = None
    faults: dict[int, str] = field(default_factory=dict)


class Sampler:
    """Parameters and token counts of `slots` slots over logits of `width` entries."""

    def __init__(
        self,
        slots: int,
        width: int,
        device: torch.device,
        compiler: GrammarCompiler | None = None,
        *,
        owns_logits: bool = False,
    ) -> None:
        """`compiler`: of the model's vocabulary; None: requests have no grammar. `owns_logits`: `sample` may overwrite
        the logits that it gets, which saves a copy.
        """
        self._owns_logits = owns_logits
        self._device = device
        self.table = SlotTable(slots)
        self._offsets = ScoreOffsets(width)
        self._penalties = Penalties(slots, width, device)
        self._bad_words = BadWords(width)
        self._width = width
        self._grammars: MaskSource | None = None if compiler is None else GrammarMasks(compiler, width)

    def share_masks(self, broadcast: Broadcast, *, leads: bool) -> None:
        """Before any request: the masks of grammars are those of the rank that leads."""
        if isinstance(self._grammars, GrammarMasks):
            self._grammars = SharedMasks(self._grammars if leads else None, self._width, broadcast)

    def share_counts(self, counts: torch.Tensor, seen: torch.Tensor) -> None:
        """Before any request: count tokens in these tensors, in which decode steps on the device count too."""
        self._penalties.share(counts, seen)

    def offsets(self, slot: int) -> Offsets:
        """Logit bias and barred stop tokens of the slot's request."""
        return self._offsets.of(slot)

    def packed_masks(self, slots: NDArray[np.int64]) -> PackedMasks | None:
        """The packed masks of rows in these slots that each sample one token, of grammars and bad words; None without one."""
        rows = self._masked_rows(slots, None, None)
        masks = self._grammars.packed(rows) if rows and self._grammars is not None else None
        worded = np.flatnonzero(self.table.flags[slots] & WORDED).tolist()
        barred = {row: tokens for row in worded if (tokens := self._bad_words.barred(int(slots[row])))}
        return masks if not barred else with_barred(masks, barred, self._width)

    def note(self, slots: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Note the tokens that the device sampled and counted for these slots; NOT_A_NUMBER is left out."""
        flags = np.where(tokens == NOT_A_NUMBER, 0, self.table.flags[slots])
        penalised = np.flatnonzero(flags & PENALISED)
        if len(penalised):
            self._penalties.note(slots[penalised], tokens[penalised])
        for row in np.flatnonzero(flags & WORDED).tolist():
            self._bad_words.add(int(slots[row]), int(tokens[row]))
        rows = np.flatnonzero(flags & GRAMMAR)
        if len(rows) and self._grammars is not None:
            self._grammars.add(zip(slots[rows].tolist(), tokens[rows].tolist(), strict=True))

    def recount(self, slots: Iterable[int]) -> None:
        """Forget what a failed step on the device may have counted for these slots."""
        self._penalties.recount(slot for slot in slots if self.table.flags[slot] & PENALISED)

    def join(
        self,
        slot: int,
        sampling: SamplingParams,
        known: Sequence[int] = (),
        prompt_length: int = 0,
        stop_ids: frozenset[int] = frozenset(),
    ) -> None:
        """Admit a request to `slot`. Where `sampling.reads_known`, `known` must be its prompt and output tokens; with
        min_tokens, `stop_ids` must be the tokens that end its output. Raises ValueError for a grammar without compiler.
        """
        self.table.join(slot, sampling)
        self._offsets.join(slot, sampling, prompt_length, stop_ids)
        if sampling.has_penalties:
            self._penalties.join(slot, known, prompt_length)
        if sampling.bad_words:
            self._bad_words.join(slot, sampling.bad_words, known[prompt_length:])
        if sampling.grammar is not None:
            if self._grammars is None:
                raise ValueError("this model has no tokenizer for grammars")
            self._grammars.join(slot, sampling.grammar, known[prompt_length:])

    def begin(
        self, slots: NDArray[np.int64], samples: NDArray[np.bool_] | None = None, drafts: Drafts | None = None
    ) -> None:
        """Begin what `sample` needs besides the logits of these rows: the masks of grammars, in a thread."""
        if not self.table.used & GRAMMAR:
            return
        rows = self._masked_rows(slots, samples, drafts)
        if rows and self._grammars is not None:
            self._grammars.begin(rows)

    def take(
        self,
        largest: tuple[NDArray[np.int64], NDArray[np.float32]],
        slots: NDArray[np.int64],
        samples: NDArray[np.bool_],
    ) -> Sampled | None:
        """As `sample` for rows whose largest logits are known, index and value [N or more] each; None if a row needs more
        than the largest one.
        """
        best, highest = largest
        if self.table.used and (self.table.flags[slots] * samples).any():
            return None
        count = len(slots)
        logits = zip(best[:count].tolist(), highest[:count].tolist(), strict=True)
        return Sampled([token if math.isfinite(logit) else NOT_A_NUMBER for token, logit in logits])

    def sample(
        self,
        logits: torch.Tensor,
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        samples: NDArray[np.bool_] | None = None,
        drafts: Drafts | None = None,
    ) -> Sampled:
        """Sample from logits [N, V]. Row i belongs to the request in slots[i] and samples its token at positions[i].

        A row with samples[i] false gets its argmax, as a NaN check only. A row with NaN, +∞ or no finite score gets
        NOT_A_NUMBER.
        """
        table = self.table
        flags = table.flags[slots]
        if samples is not None:
            flags = np.where(samples, flags, 0).astype(np.uint8)
        used = int(np.bitwise_or.reduce(flags))
        scores = logits.float()
        faults: dict[int, str] = {}
        if used & (EDITED | PENALISED | WORDED | GRAMMAR):
            scores = self._adjusted(scores, logits, used, flags, slots, positions, drafts)
        if used & GRAMMAR and self._grammars is not None:
            faults = self._grammars.apply(scores, self._masked_rows(slots, samples, drafts))
        chosen, usable = _largest(scores)
        if used & RANDOM:
            for rows in _groups(flags, usable):
                chosen[rows] = self._drawn(scores, rows, slots[rows], positions[rows], int(flags[rows[0]]))
        if faults:
            usable[list(faults)] = False
        chosen[~usable] = NOT_A_NUMBER
        kept = None if drafts is None else drafts.kept(chosen)
        counting = usable if kept is None else usable & kept
        logprobs: dict[int, TokenLogprob] = {}
        if used & LOGPROBS:
            rows = np.flatnonzero((flags & LOGPROBS).astype(bool) & counting)
            if len(rows):
                found = logprobs_of(logits[self._tensor(rows)], self._tensor(chosen[rows]), table.logprobs[slots[rows]])
                logprobs = dict(zip(rows.tolist(), found, strict=True))
        if used & PENALISED:  # last, so that an error before it leaves the counts unchanged for a rerun
            rows = np.flatnonzero((flags & PENALISED).astype(bool) & counting)
            self._penalties.add(slots[rows], chosen[rows])
        if used & WORDED:
            for row in np.flatnonzero((flags & WORDED).astype(bool) & counting).tolist():
                self._bad_words.add(int(slots[row]), int(chosen[row]))
        if used & GRAMMAR and self._grammars is not None:
            rows = np.flatnonzero((flags & GRAMMAR).astype(bool) & counting)
            self._grammars.add(zip(slots[rows].tolist(), chosen[rows].tolist(), strict=True))
        return Sampled(chosen.tolist(), logprobs, kept, faults)

    def score_prompts(
        self, logits: torch.Tensor, targets: Sequence[PromptTargets]
    ) -> dict[str, tuple[TokenLogprob, ...]]:
        """The logprobs of prompt tokens by request, from logits [N, V] whose rows are those of the targets in order."""
        found: dict[str, tuple[TokenLogprob, ...]] = {}
        first = 0
        for each in targets:
            last = first + len(each.tokens)
            count = int(self.table.prompt_logprobs[each.slot])
            found[each.request_id] = prompt_logprobs(logits[first:last], each.tokens, count)
            first = last
        return found

    def _masked_rows(
        self, slots: NDArray[np.int64], samples: NDArray[np.bool_] | None, drafts: Drafts | None
    ) -> list[MaskedRow]:
        flags = self.table.flags[slots] & GRAMMAR
        if samples is not None:
            flags = np.where(samples, flags, 0).astype(np.uint8)
        rows = np.flatnonzero(flags).tolist()
        if drafts is None:
            return [MaskedRow(row, int(slots[row])) for row in rows]
        return [MaskedRow(row, int(slots[row]), drafts.after(row)) for row in rows if drafts.first[row] == row]

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
        """Scores with offsets, penalties and bad words. Logprobs are read from logits that stay as they are."""
        if scores is logits and (used & LOGPROBS or not self._owns_logits):
            scores = scores.clone()
        if used & EDITED:
            rows = np.flatnonzero(flags & EDITED)
            self._offsets.apply(scores, rows.tolist(), slots[rows].tolist(), positions[rows].tolist())
        if used & PENALISED:
            rows = np.flatnonzero(flags & PENALISED)
            of = slots[rows]
            before = None if drafts is None else drafts.preceding_drafts(rows)
            self._penalties.apply(
                scores,
                self._tensor(rows),
                self._tensor(of),
                repetition=self._tensor(self.table.repetition[of]),
                frequency=self._tensor(self.table.frequency[of]),
                presence=self._tensor(self.table.presence[of]),
                preceding_drafts=None if before is None else (self._tensor(before[0]), self._tensor(before[1])),
            )
        if used & WORDED:
            rows = np.flatnonzero(flags & WORDED)
            drafted = {} if drafts is None else {row: drafts.before(row) for row in rows.tolist()}
            self._bad_words.apply(scores, rows.tolist(), slots[rows].tolist(), drafted)
        return scores

    def _drawn(
        self,
        scores: torch.Tensor,
        rows: NDArray[np.int64],
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        flags: int,
    ) -> NDArray[np.int64]:
        table = self.table
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
    """Argmax per row (lowest column of a tie), and whether the maximum is finite.

    NaN compares as largest, so a row with NaN is detected. On a CPU numpy's argmax is 25 times as fast as torch's.
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
    """The rows that draw randomly, split into those without and with top-k or top-p (which need sorted tokens)."""
    random = (flags & RANDOM).astype(bool) & usable
    truncated = (flags & TRUNCATED).astype(bool)
    return [rows for rows in (np.flatnonzero(random & ~truncated), np.flatnonzero(random & truncated)) if len(rows)]
