"""The tokens that each row's grammar allows, computed in a thread while the model computes the logits.

Everything that a matcher does runs in this one thread, in order: compile, consume a sampled token, compute a mask. The
step waits only for masks that are later than its logits.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import llguidance
import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.grammar import Grammar
from sluice_engine.grammar.compiler import GrammarCompiler, reason_of


class MaskedRow(NamedTuple):
    """The first logits row of a request with a grammar; the rows of its draft tokens follow it."""

    row: int
    slot: int
    drafts: tuple[int, ...] = ()


@dataclass(slots=True)
class Masks:
    """`blocked` [R, V]: True for the tokens that `rows` must not sample. `faults`: row → why its grammar failed."""

    rows: list[int]
    blocked: NDArray[np.bool_]
    faults: dict[int, str] = field(default_factory=dict)


class GrammarMasks:
    """The matchers of the slots' requests."""

    def __init__(self, compiler: GrammarCompiler, width: int, threads: int = 2) -> None:
        self._compiler = compiler
        self._width = width
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._executor = llguidance.LLExecutor(num_threads=threads)
        self._matchers: dict[int, Any] = {}  # by slot; belongs to the thread
        self._faults: dict[int, str] = {}  # by slot; belongs to the thread
        self._ahead: Future[Masks] | None = None

    def join(self, slot: int, grammar: Grammar, output: Sequence[int]) -> None:
        """Begin the grammar of the slot's request, which has this output."""
        self._thread.submit(self._join, slot, grammar, tuple(output))

    def add(self, slot: int, token: int) -> None:
        """Add an output token of the slot's request."""
        self._thread.submit(self._add, slot, token)

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """Compute the masks of these rows from now on; `apply` takes them."""
        self._ahead = self._thread.submit(self._compute, rows)

    def apply(self, scores: torch.Tensor, rows: Sequence[MaskedRow]) -> dict[int, str]:
        """Set the scores [N, V] of tokens that are not allowed to −∞. Returns row → fault for failed grammars."""
        if self._ahead is None:
            self.begin(rows)
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            raise RuntimeError("no masks were begun")
        masks = ahead.result()
        if masks.rows:
            places = torch.tensor(masks.rows, device=scores.device)
            blocked = torch.from_numpy(masks.blocked).to(scores.device)
            scores[places] = scores[places].masked_fill_(blocked, -torch.inf)
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

    def _add(self, slot: int, token: int) -> None:
        if (matcher := self._matchers.get(slot)) is not None and not matcher.is_stopped():
            matcher.consume_token(token)

    def _compute(self, rows: Sequence[MaskedRow]) -> Masks:
        faults: dict[int, str] = {}
        entries: list[tuple[Any, int, list[int]]] = []
        masked: list[int] = []
        for row, slot, drafts in rows:
            matcher = self._matchers.get(slot)
            if matcher is None or matcher.is_error():
                fault = self._faults.get(slot) or reason_of(matcher.get_error() if matcher else "")
                faults[row] = f"its grammar failed: {fault}" if matcher else fault
            else:
                if not matcher.is_stopped():
                    entries.append((matcher, len(masked), list(drafts)))
                masked += range(row, row + 1 + len(drafts))
        words = (self._width + 31) // 32
        packed = np.zeros((len(masked), words), dtype=np.int32)
        if entries:
            address = packed.ctypes.data
            if any(drafts for _, _, drafts in entries):
                self._executor.unsafe_compute_mask_ptr_with_draft_token(entries, address, words * 4, len(masked))
            else:
                plain = [(matcher, place) for matcher, place, _ in entries]
                self._executor.unsafe_compute_mask_ptr(plain, address, words * 4, len(masked))
        for matcher, place, _ in entries:
            if matcher.is_error():
                faults[masked[place]] = f"its grammar failed: {reason_of(matcher.get_error())}"
        allowed = np.unpackbits(packed.view(np.uint8), axis=1, count=self._width, bitorder="little")
        complete = np.flatnonzero(~allowed.any(axis=1))  # nothing can follow: the output ends here
        allowed[complete[:, None], self._compiler.eos_ids] = 1
        return Masks(masked, allowed == 0, faults)
