"""Grammars on several ranks: rank 0 computes the masks and its verdict holds, so that all ranks sample the same tokens."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sluice_engine.backend.parallel.group import Group
from sluice_engine.core.engine import EngineLoop
from sluice_engine.grammar import Grammar
from sluice_engine.sampling.grammar_masks import GrammarMasks, MaskedRow, PackedMasks
from sluice_engine.sampling.shared_masks import SharedMasks
from sluice_engine.sampling.token_mask import packed_mask
from tests.engine.backend.cuda.test_whole_engine import on_cuda
from tests.engine.backend.parallel.thread_ranks import on_ranks, sharded_engine
from tests.engine.oracle import run, submit

LIST = {"type": "array", "minItems": 4, "maxItems": 4, "items": {"enum": ["alpha", "beta", 7]}}
GRAMMAR = Grammar("json_schema", json.dumps(LIST))
WIDTH = 70
FAULT = "its grammar failed: step took too long"
Ends = dict[str, tuple[list[int], str, str | None]]


def load(engine: EngineLoop) -> Ends:
    """Tokens, end and error of requests with grammars, of one with bad words and of one with neither."""
    submit(engine, "greedy", [40, 41, 42], 90, grammar=GRAMMAR)
    submit(engine, "random", [43, 44], 90, grammar=GRAMMAR, temperature=0.9, seed=3, presence_penalty=0.3)
    submit(engine, "plain", [50, 51], 40, ignore_eos=True, repetition_penalty=1.2)
    words = (
        *((token,) for token in range(3, 400, 3)),
        *((one, other) for one in range(4, 90, 3) for other in (1, 2, 5)),
    )
    submit(engine, "words", [52, 53], 40, ignore_eos=True, bad_words=words, temperature=0.7, seed=4)
    tokens: dict[str, list[int]] = {}
    ends: Ends = {}
    for report in run(engine):
        for delta in report.deltas:
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
            if delta.finish is not None:
                ends[delta.request_id] = (tokens[delta.request_id], delta.finish, delta.error)
    return ends


@pytest.mark.parametrize("speculation", ["off", "on"])
def test_two_ranks_follow_grammars_as_one_does(tiny_model: Path, speculation: str) -> None:
    with sharded_engine(tiny_model, 2, speculation=speculation) as engine:
        got = load(engine)
    assert got == load(on_cuda(tiny_model, speculation=speculation))
    assert {end for _, end, _ in got.values()} <= {"stop", "length"}
    assert len(got["greedy"][0]) > 5


def test_a_grammar_that_fails_on_rank_0_alone_ends_its_request_and_the_ranks_go_on_together(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, leaders, computed = GrammarMasks._compute, set[int](), 0

    def failing(self: GrammarMasks, rows: list[MaskedRow]) -> PackedMasks:
        nonlocal computed
        leaders.add(id(self))
        computed += 1
        found = compute(self, rows)
        if computed < 6:
            return found
        found.words[0] = 0
        return PackedMasks(found.rows, found.words, {found.rows[0]: FAULT})

    want = load(on_cuda(tiny_model, speculation="off"))
    monkeypatch.setattr(GrammarMasks, "_compute", failing)
    with sharded_engine(tiny_model, 2, speculation="off") as engine:
        got = load(engine)
    assert len(leaders) == 1  # the other rank has no verdict of its own
    assert [end for _, end, error in got.values() if error == FAULT] == ["error", "error"]
    assert got["plain"] == want["plain"]


class Given:
    """Masks of rows 1 and 2, the first of which failed."""

    def packed(self, rows: list[MaskedRow]) -> PackedMasks:
        words = np.stack([packed_mask([], WIDTH), packed_mask([3, 69], WIDTH)])
        return PackedMasks([1, 2], words, {1: FAULT})


def test_every_rank_bars_the_tokens_that_rank_0_bars_and_rank_0_alone_has_the_reason() -> None:
    rows = [MaskedRow(1, 0), MaskedRow(2, 5)]

    def work(group: Group) -> tuple[list[list[int]], dict[int, str]]:
        own: GrammarMasks | None = Given() if group.rank == 0 else None  # type: ignore[assignment]
        masks, scores = SharedMasks(own, WIDTH, group.broadcast), torch.zeros(3, WIDTH)
        faults = masks.apply(scores, rows)
        return [np.flatnonzero(np.isfinite(row.numpy())).tolist() for row in scores], faults

    leader, follower = on_ranks(2, work)
    assert leader[0] == follower[0] == [list(range(WIDTH)), [], [3, 69]]
    assert (leader[1], follower[1]) == ({1: FAULT}, {})
