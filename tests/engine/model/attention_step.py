"""A step of paged attention over scattered blocks, and the same by dense attention in float64."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from hypothesis import strategies as st

from sluice_engine.model.attention import PagedAttention
from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.model.int8_entries import entries_of, fill, from_entries, to_entries
from sluice_engine.model.kv_cache import KVCache, KVShape

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """Rows (tokens cached before, new tokens) and a shape."""

    rows: tuple[tuple[int, int], ...]
    heads: int
    kv_heads: int
    dim: int
    block_size: int
    window: int | None
    softcap: float | None
    dtype: torch.dtype
    seed: int
    int8: bool = False  # the cache: entries of 8-bit integers


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.sampled_from([1, 2, 3]))
    row = st.tuples(st.integers(0, 70), st.one_of(st.just(1), st.integers(1, 40)))
    return Case(
        rows=tuple(draw(st.lists(row, min_size=1, max_size=5))),
        heads=kv_heads * draw(st.sampled_from([1, 2, 4, 7])),
        kv_heads=kv_heads,
        dim=draw(st.sampled_from([16, 48, 64, 128])),
        block_size=draw(st.sampled_from([1, 5, 16, 32])),
        window=draw(st.one_of(st.none(), st.integers(1, 50))),
        softcap=draw(st.one_of(st.none(), st.sampled_from([0.5, 30.0]))),
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
        seed=draw(st.integers(0, 1 << 20)),
    )


class Setting:
    """A case's tensors: new queries, keys and values; a cache with what came before, in scattered blocks."""

    def __init__(self, case: Case) -> None:
        self.case = case
        dice = torch.Generator().manual_seed(case.seed)
        rows = sorted(case.rows, key=lambda row: row[1] > 1)  # single tokens first, as they come from the builder
        ends = [before + new for before, new in rows]
        width = -(-max(ends) // case.block_size)
        blocks = width * len(rows)
        order = torch.randperm(blocks, generator=dice).view(len(rows), width)
        tokens = sum(new for _, new in rows)

        def draw(count: int, heads: int) -> torch.Tensor:
            return torch.randn(count, heads, case.dim, generator=dice).to(case.dtype)

        self.query = draw(tokens, case.heads)
        self.history = [(draw(end, case.kv_heads), draw(end, case.kv_heads)) for end in ends]
        kept_as = torch.int8 if case.int8 else case.dtype
        shape = KVShape(layers=1, kv_heads=case.kv_heads, head_dim=case.dim, dtype=kept_as)
        self.cache = KVCache(shape, blocks, case.block_size, CPU)
        contents = self.entries() if case.int8 else list(self.cache.layers[0])
        slots: list[int] = []
        for row, (before, new) in enumerate(rows):
            places = [
                int(order[row, at // case.block_size]) * case.block_size + at % case.block_size
                for at in range(before + new)
            ]
            for pool, kept in zip(contents, self.history[row], strict=True):
                pool.view(-1, *pool.shape[2:])[places[:before]] = (to_entries(kept) if case.int8 else kept)[:before]
            slots += places[before:]
        if case.int8:
            self.fill(contents)
        news = [new for _, new in rows]
        self.key = torch.cat([keys[-new:] for (keys, _), new in zip(self.history, news, strict=True)])
        self.value = torch.cat([values[-new:] for (_, values), new in zip(self.history, news, strict=True)])
        self.rows = rows
        singles = sum(new == 1 for new in news)
        groups, first = [], 0
        for part in (slice(0, singles), slice(singles, len(rows))):
            if rows[part]:
                groups.append(self._group(rows[part], order[part], first))
                first += groups[-1].tokens
        empty = torch.zeros(1, tokens, dtype=torch.int64)
        self.batch = Batch(empty, empty, torch.tensor(slots), torch.zeros(1, dtype=torch.int64), tuple(groups))

    def _group(self, rows: list[tuple[int, int]], order: torch.Tensor, first: int) -> RowGroup:
        longest = max(new for _, new in rows)
        columns = torch.arange(longest)
        starts = torch.tensor([before for before, _ in rows])
        counts = torch.tensor([new for _, new in rows])
        inside = columns < counts[:, None]
        return RowGroup(
            first=first,
            tokens=int(counts.sum()),
            rows=len(rows),
            longest=longest,
            block_tables=order[:, : -(-int((starts + counts).max()) // self.case.block_size)].contiguous(),
            context_lens=starts + counts,
            query_positions=torch.where(inside, starts[:, None] + columns, -1),
            padded_index=None if bool(inside.all()) else torch.nonzero(inside.view(-1)).view(-1),
        )

    def entries(self) -> list[torch.Tensor]:
        """The 8-bit entries of keys and of values, by block and token."""
        return [entries_of(pool, keys=place == 0) for place, pool in enumerate(self.cache.layers[0])]

    def fill(self, entries: list[torch.Tensor]) -> None:
        """The inverse of `entries`."""
        for place, (pool, each) in enumerate(zip(self.cache.layers[0], entries, strict=True)):
            fill(pool, each, keys=place == 0)

    def _kept(self, part: torch.Tensor) -> torch.Tensor:
        """Keys or values as the cache has them."""
        return from_entries(to_entries(part)) if self.case.int8 else part

    def take_written(self) -> None:
        """Make the entries that were written part of what came before: an element between two integers takes either."""
        kept = [from_entries(each.flatten(0, 1)[self.batch.slot_mapping]) for each in self.entries()]
        news = [new for _, new in self.rows]
        for row, written in enumerate(zip(*(part.split(news) for part in kept), strict=True)):
            keys, values = (
                torch.cat([before[: -news[row]].float(), new])
                for before, new in zip(self.history[row], written, strict=True)
            )
            self.history[row] = keys, values

    def attend(self, backend: PagedAttention) -> torch.Tensor:
        """[tokens, heads, dim] by this backend, queries and the rest as the views that transformers hands over."""
        query, key, value = (part.unsqueeze(0).transpose(1, 2) for part in (self.query, self.key, self.value))
        out, _ = backend(
            SimpleNamespace(layer_idx=0),
            query,
            key,
            value,
            None,
            scaling=0.3,
            sliding_window=self.case.window,
            softcap=self.case.softcap,
            sluice_batch=self.batch,
            sluice_cache=self.cache,
        )
        return out[0]

    def dense(self) -> torch.Tensor:
        """The same in float64, a row and a token at a time."""
        out, at = [], 0
        group = self.case.heads // self.case.kv_heads
        for (before, new), (keys, values) in zip(self.rows, self.history, strict=True):
            for position in range(before, before + new):
                oldest = 0 if self.case.window is None else max(0, position - self.case.window + 1)
                seen = slice(oldest, position + 1)
                key, value = (
                    self._kept(part[seen]).double().repeat_interleave(group, dim=1) for part in (keys, values)
                )
                scores = torch.einsum("hd,nhd->hn", self.query[at].double(), key) * 0.3
                if self.case.softcap is not None:
                    scores = self.case.softcap * torch.tanh(scores / self.case.softcap)
                out.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), value))
                at += 1
        return torch.stack(out)


PLAIN = Case(((30, 1), (40, 1), (5, 1), (0, 9), (17, 33)), 8, 2, 64, 16, None, None, torch.float32, 1)


# Rows beyond what a softmax covers at once, so that a window hides whole groups of keys of some tokens and not of others.
LONG = Case(((230, 1), (64, 1), (200, 40), (0, 150)), 8, 2, 64, 16, None, None, torch.float32, 1)
