"""The workload that verifies a decoder of our own before it serves: prompts over several blocks, chunks, rows beyond each
window.

The reference runs three steps: two prompts; a mix of decoding rows, chunks and a new prompt; one token for each row.
The decoder starts each step from the reference's cache, so that one difference does not cause further ones.

Rows beyond a window do not compute their context, which may be thousands of tokens: the context repeats a block that
the first step computed. The block at the window's edge has large values, so that an off-by-one in thousands of
positions is visible.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from sluice_engine.backend.batch_builder import BatchBuilder
from sluice_engine.model.batch import Batch
from sluice_engine.model.int8_entries import entries_of, fill, from_entries, to_entries
from sluice_engine.model.kv_cache import KVCache, KVShape
from sluice_engine.scheduler import Row

BLOCK = 16
IDS = 64  # upper bound of the token ids, besides the vocabulary's size
_PROMPT, _SHORT, _NEW, _CROSSING = 2 * BLOCK + 3, 5, 3, 5  # tokens

Forward = Callable[[Batch, KVCache], torch.Tensor]  # → logits [rows, vocab] float32


class OutputMismatch(Exception):
    """A decoder's result differs from the module's; the message names the difference. Its weights were packed or merged,
    so the module must be read again.
    """


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of the reference: its input, the cache before and after it (`KVCache.tensors`), and its logits."""

    batch: Batch
    before: list[torch.Tensor]
    after: list[torch.Tensor]
    logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class _ProbeRow:
    """A row of the steps: its first position and its token count in each step. `window`: the window that its synthetic
    context crosses.
    """

    start: int
    counts: tuple[int, int, int]
    window: int | None = None

    @property
    def end(self) -> int:
        return self.start + sum(self.counts)


class Probe:
    """Three steps for models that cache `shape`, with token ids below `vocab`. Windows of `positions` or more are not
    crossed, because no request of the model reaches them.
    """

    def __init__(self, shape: KVShape, vocab: int, positions: int | None, device: torch.device) -> None:
        self._ids, self._shape = min(vocab, IDS), shape
        self._windows = shape.groups.windows
        seen = {window for window in self._windows if window and (positions is None or window < positions)}
        self._rows = _probe_rows(sorted(seen))
        self._tables = [self._table(index) for index in range(len(self._rows))]
        used = 1 + max(max(table) for table in self._tables)
        self._cache = KVCache(shape, used, BLOCK, device)
        self._batch_builder = BatchBuilder(
            max_num_seqs=len(self._rows),
            max_model_length=self.positions,
            block_size=BLOCK,
            null_block=self._cache.null_block,
            device=device,
            windows=self._windows,
        )

    @property
    def tokens(self) -> int:
        """Number of tokens that all steps compute."""
        return sum(sum(row.counts) for row in self._rows)

    @property
    def positions(self) -> int:
        """One more than the largest position of a row, which may lie beyond those of the model."""
        return max(row.end for row in self._rows)

    def record(self, forward: Forward) -> list[RecordedStep]:
        """Run the reference's steps and record them."""
        steps: list[RecordedStep] = []
        for step in range(3):
            if step == 1:
                self._make_contexts()
            batch, before = self._batch(step), self._snapshot()
            logits = forward(batch, self._cache).clone()
            steps.append(RecordedStep(batch, before, self._snapshot(), logits))
        return steps

    def difference(
        self, forward: Forward, steps: list[RecordedStep], close: float, *, int8_cache: bool = False
    ) -> str | None:
        """The first difference of `forward` from the reference beyond `close` of the largest value, or None. `int8_cache`: it
        caches keys and values as 8-bit integers.
        """
        cache = self._int8_cache() if int8_cache else self._cache
        for number, step in enumerate(steps, start=1):
            for (tensor, keys), content in zip(cache.parts, step.before, strict=True):
                if int8_cache:
                    fill(tensor, to_entries(content), keys=keys)
                else:
                    tensor.copy_(content)
            got = forward(replace(step.batch, native={}), cache)
            close_rows = (got - step.logits).abs() <= close * step.logits.abs().amax(dim=-1, keepdim=True)
            if not bool(close_rows.all()):
                rows = (~close_rows.all(dim=-1)).nonzero().flatten().tolist()
                return f"logits of rows {rows} in step {number} of the probe"
            for (kept, keys), want in zip(cache.parts, step.after, strict=True):
                tensor = from_entries(entries_of(kept, keys=keys)) if int8_cache else kept
                written = torch.cat([each.slot_mapping for each in (step.batch, *step.batch.others)])
                most = want.flatten(0, 1)[written].float().abs().max()
                if not bool(((tensor.float() - want.float()).abs() <= close * most).all()):
                    return f"{'keys' if keys else 'values'} in step {number} of the probe"
        return None

    def _int8_cache(self) -> KVCache:
        shape = replace(self._shape, dtype=torch.int8)
        return KVCache(shape, self._cache.null_block, BLOCK, self._cache.layers[0][0].device)

    def _batch(self, step: int) -> Batch:
        rows = []
        for slot, (row, table) in enumerate(zip(self._rows, self._tables, strict=True)):
            start, count = row.start + sum(row.counts[:step]), row.counts[step]
            if count:
                tokens = tuple((7 * slot + 3 * at + at * at) % self._ids for at in range(start, start + count))
                rows.append(Row(str(slot), slot, start, tokens, True, 0, table))
        self._batch_builder.install(rows)
        return self._batch_builder.batch(self._batch_builder.gather(rows)).batch

    def _table(self, index: int) -> tuple[int, ...]:
        """A row's block table, by entry and layer group. The blocks that it writes and its first block are its own; the
        rest of a synthetic context repeats the first row's second block.
        """
        row, groups = self._rows[index], len(self._windows)
        own = sum(len(self._written_entries(each)) for each in self._rows[:index]) * groups
        table: list[int] = []
        for entry in range(-(-row.end // BLOCK)):
            if entry in self._written_entries(row):
                table += range(own, own + groups)
                own += groups
            else:
                table += range(groups, 2 * groups)
        return tuple(table)

    def _written_entries(self, row: _ProbeRow) -> list[int]:
        return [entry for entry in range(-(-row.end // BLOCK)) if entry == 0 or entry >= row.start // BLOCK]

    def _make_contexts(self) -> None:
        groups = len(self._windows)
        for row, table in zip(self._rows, self._tables, strict=True):
            if row.window is None:
                continue
            for entry in self._written_entries(row):
                for group in range(groups):
                    block = table[entry * groups + group]
                    for place, tensor in enumerate(self._cache.tensors):
                        self._cache.copy_one(tensor, groups + group, block)
                        if entry == 0 and place % 2:
                            tensor[block] *= max(1.0, row.window / 8)

    def _snapshot(self) -> list[torch.Tensor]:
        return [tensor.clone() for tensor in self._cache.tensors]


def module_logits(module: torch.nn.Module, batch: Batch, cache: KVCache) -> torch.Tensor:
    """The logits [rows, vocab] float32 of a step as the module computes them: bind the module to get a `Forward`."""
    output = module(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        use_cache=False,
        logits_to_keep=batch.logits_index,
        sluice_batch=batch,
        sluice_cache=cache,
    )
    logits: torch.Tensor = output.logits[0].float().clone()
    return logits


def _probe_rows(windows: list[int]) -> list[_ProbeRow]:
    """For each window, one row that decodes beyond it and one chunk that crosses it."""
    rows = [_ProbeRow(0, (_PROMPT, 1, 1)), _ProbeRow(0, (_SHORT, BLOCK, 1)), _ProbeRow(0, (0, _NEW, 1))]
    for window in windows:
        rows.append(_ProbeRow(window + BLOCK // 2, (0, 1, 1), window))
        rows.append(_ProbeRow(max(0, window - 2), (0, _CROSSING, 1), window))
    return rows
