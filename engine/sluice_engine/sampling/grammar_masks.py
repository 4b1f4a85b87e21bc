"""The tokens that each row's grammar allows, computed in a thread while the model computes the logits.

Everything that a matcher does runs in this one thread, in order: compile, consume a sampled token, compute a mask. The
step waits only for masks that are later than its logits.
"""

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import llguidance
import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.grammar import Grammar
from sluice_engine.grammar.compiler import GrammarCompiler, reason_of
from sluice_engine.sampling.token_mask import TokenMask, end_where_empty, packed_mask, token_mask, words_of

KNOWN_BYTES: Final = 64 << 20


class MaskedRow(NamedTuple):
    """The first logits row of a request with a grammar; the rows of its draft tokens follow it."""

    row: int
    slot: int
    drafts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PackedMasks:
    """words [R, ceil(V / 32)] int32: the tokens that rows[i] may sample, one bit each; none where its grammar failed.
    `faults`: row → why it failed.
    """

    rows: list[int]
    words: NDArray[np.int32]
    faults: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Masks:
    """`rows`: row → the tokens that it may sample. `faults`: row → why its grammar failed."""

    rows: dict[int, TokenMask]
    faults: dict[int, str] = field(default_factory=dict)


def masked_rows(rows: Sequence[MaskedRow]) -> list[int]:
    """The rows of logits that have a mask: those of the requests, each followed by those of its drafts."""
    return [each for row, _, drafts in rows for each in range(row, row + 1 + len(drafts))]


def with_barred(masks: PackedMasks | None, barred: Mapping[int, Collection[int]], width: int) -> PackedMasks:
    """The masks without the tokens that are barred by row; a row without a mask allows all others."""
    words = {} if masks is None else dict(zip(masks.rows, masks.words, strict=True))
    for row, tokens in barred.items():
        words[row] = words.get(row, np.int32(-1)) & ~packed_mask(tokens, width)
    return PackedMasks(list(words), np.stack(list(words.values())), {} if masks is None else masks.faults)


class GrammarMasks:
    """The matchers of the slots' requests."""

    def __init__(self, compiler: GrammarCompiler, width: int) -> None:
        self._compiler = compiler
        self._width = width
        self._words = words_of(width)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        # On two cores a second thread takes more from the model than it gains.
        self._executor = llguidance.LLExecutor(num_threads=min(8, max(1, (os.cpu_count() or 1) // 4)))
        self._known: OrderedDict[bytes, TokenMask] = OrderedDict()  # by the packed mask
        self._kept = max(1, KNOWN_BYTES // (4 * width))
        self._matchers: dict[int, Any] = {}  # by slot; belongs to the thread
        self._faults: dict[int, str] = {}  # by slot; belongs to the thread
        self._ahead: Future[Masks] | None = None

    def join(self, slot: int, grammar: Grammar, output: Sequence[int]) -> None:
        """Begin the grammar of the slot's request, which has this output."""
        self._thread.submit(self._join, slot, grammar, tuple(output))

    def add(self, tokens: Iterable[tuple[int, int]]) -> None:
        """Add output tokens, as (slot, token) in order."""
        self._thread.submit(self._add, tuple(tokens))

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """Compute the masks of these rows from now on; `apply` takes them."""
        self._ahead = self._thread.submit(self._token_masks, rows)

    def begin_packed(self, rows: Sequence[MaskedRow]) -> "Future[PackedMasks]":
        """The masks of these rows as words, computed from now on."""
        return self._thread.submit(self._compute, rows)

    def packed(self, rows: Sequence[MaskedRow]) -> PackedMasks:
        """The masks of these rows as words. Waits for them."""
        return self.begin_packed(rows).result()

    def apply(self, scores: torch.Tensor, rows: Sequence[MaskedRow]) -> dict[int, str]:
        """Set the scores [N, V] of tokens that are not allowed to −∞. Returns row → fault for failed grammars."""
        ahead = self._ahead or self._thread.submit(self._token_masks, rows)
        self._ahead = None
        masks = ahead.result()
        if scores.device.type == "cpu":  # numpy's operations on one row start no threads
            table = scores.numpy()
            for row, mask in masks.rows.items():
                mask.bar(table[row])
        else:
            for row, mask in masks.rows.items():
                scores[row] += torch.from_numpy(mask.as_penalty(self._width)).to(scores.device)
        return masks.faults

    def _join(self, slot: int, grammar: Grammar, output: tuple[int, ...]) -> None:
        self._faults.pop(slot, None)
        try:
            matcher = self._matchers[slot] = self._compiler.matcher(grammar)
        except Exception as error:  # noqa: BLE001 - one request's grammar must not stop the others
            self._matchers.pop(slot, None)
            self._faults[slot] = f"its grammar cannot be compiled: {error}"
            return
        for token in output:
            matcher.consume_token(token)

    def _add(self, tokens: Iterable[tuple[int, int]]) -> None:
        for slot, token in tokens:
            if (matcher := self._matchers.get(slot)) is not None and not matcher.is_stopped():
                matcher.consume_token(token)

    def _token_masks(self, rows: Sequence[MaskedRow]) -> Masks:
        packed = self._compute(rows)
        found = zip(packed.rows, packed.words, strict=True)
        return Masks({row: self._known_mask(mask) for row, mask in found if row not in packed.faults}, packed.faults)

    def _compute(self, rows: Sequence[MaskedRow]) -> PackedMasks:
        faults: dict[int, str] = {}
        entries: list[tuple[Any, int, list[int]]] = []
        masked = masked_rows(rows)
        place = 0
        for row, slot, drafts in rows:
            matcher = self._matchers.get(slot)
            if matcher is None or matcher.is_error():
                failed = f"its grammar failed: {reason_of(matcher.get_error())}" if matcher else ""
                faults[row] = self._faults.get(slot) or failed
            elif not matcher.is_stopped():
                entries.append((matcher, place, list(drafts)))
            place += 1 + len(drafts)
        words = self._packed(entries, len(masked))
        for matcher, place, _ in entries:
            if matcher.is_error():
                faults[masked[place]] = f"its grammar failed: {reason_of(matcher.get_error())}"
        end_where_empty(words, self._width, self._compiler.eos_ids)
        for place, row in enumerate(masked):
            if row in faults:
                words[place] = 0
        return PackedMasks(masked, words, faults)

    def _known_mask(self, packed: NDArray[np.int32]) -> TokenMask:
        """The mask of a row. Few states of a grammar differ in it, so that most are known."""
        key = packed.tobytes()
        mask = self._known.pop(key, None) or token_mask(packed, self._width)
        self._known[key] = mask
        if len(self._known) > self._kept:
            self._known.popitem(last=False)
        return mask

    def _packed(self, entries: Sequence[tuple[Any, int, list[int]]], rows: int) -> NDArray[np.int32]:
        """One bit per token, 1 where it is allowed. A row without an entry is all 0."""
        packed = np.zeros((rows, self._words), dtype=np.int32)
        address, row_bytes = packed.ctypes.data, self._words * packed.itemsize
        if plain := [(matcher, place) for matcher, place, drafts in entries if not drafts]:
            self._executor.unsafe_compute_mask_ptr(plain, address, row_bytes, rows)
        if drafting := [entry for entry in entries if entry[2]]:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafting, address, row_bytes, rows)
        return packed
