"""Beam search: results equal transformers', blocks are shared and dropped beams hold none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from sluice_engine import LLM
from sluice_engine.offline.beam_search import Beam, Branch, Expand, Expansion, beam_search
from sluice_engine.scheduler import Outcome, Plan

KV = {"threads": 1, "kv_size": 4 << 20}
EOS = 1


@pytest.mark.parametrize(("width", "max_tokens", "penalty"), [(1, 12, 1.0), (3, 24, 1.0), (4, 20, 0.0), (5, 16, 2.0)])
def test_results_equal_transformers(tiny_llama: Path, width: int, max_tokens: int, penalty: float) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    llm = LLM(tiny_llama, **KV)
    prompts = [[5, 6, 7], [9, 90, 33, 2, 64], list(range(2, 40))]
    for prompt, beams in zip(prompts, llm.beam_search(prompts, width, max_tokens, length_penalty=penalty), strict=True):
        ids = torch.tensor([prompt])
        want = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=width, num_return_sequences=width, do_sample=False,
            max_new_tokens=max_tokens, length_penalty=penalty, pad_token_id=EOS, return_dict_in_generate=True,
            output_scores=True,
        )  # fmt: skip
        for row, beam in enumerate(beams):
            tokens = want.sequences[row, len(prompt) :].tolist()
            assert list(beam.token_ids) == (tokens[: tokens.index(EOS)] if EOS in tokens else tokens)
            if width > 1:  # with one beam transformers decodes greedily and has no score
                assert beam.score == pytest.approx(float(want.sequences_scores[row]), abs=1e-3)
        assert len(beams) == width


def test_beams_share_blocks_and_a_dropped_beam_holds_none(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM(tiny_llama, **KV)
    engine, steps = llm._engine, []
    real = engine.scheduler.settle

    def watched(plan: Plan, *rest: Any) -> list[Outcome]:
        steps.append((engine.scheduler.pool.held, sum(len(row.tokens) for row in plan.rows)))
        return real(plan, *rest)

    monkeypatch.setattr(engine.scheduler, "settle", watched)
    prompt = [2 + token % 120 for token in range(160)]  # ten blocks
    llm.beam_search([prompt], 4, 24)
    assert max(held for held, _ in steps) <= 10 + 4 * 3  # at most 24 tokens of its own each; unshared it were 4 * 12
    assert steps[0][1] == 160 and {computed for _, computed in steps[1:]} == {4}  # nothing is computed twice
    assert engine.scheduler.pool.held == 0


def chain(table: dict[int, Expansion]) -> Expand:
    def expand(branches: Sequence[Branch], most: int) -> list[Expansion]:
        return [table[branch.tokens[-1]][:most] for branch in branches]

    return expand


def test_an_ended_beam_competes_by_its_score_per_length() -> None:
    table: dict[int, Expansion] = {
        0: ((2, -0.5), (EOS, -1.0), (3, -2.0), (4, -9.0)),
        2: ((3, -0.1), (EOS, -3.0), (4, -4.0), (2, -5.0)),
        3: ((EOS, -0.1), (2, -1.0), (4, -5.0), (3, -6.0)),
        4: ((4, -1.0), (3, -1.0), (2, -1.0), (EOS, -9.0)),
    }
    ((best, second),) = beam_search([(0,)], 2, 8, 1.0, frozenset({EOS}), chain(table))
    assert best == Beam((2, 3), best.score, "stop")
    assert best.score == pytest.approx(-0.7 / 3)
    assert second.score <= best.score


def test_running_beams_at_max_tokens_become_results() -> None:
    table: dict[int, Expansion] = {2: ((2, -0.1), (3, -0.2)), 3: ((3, -0.1), (2, -0.2))}
    ((first, second),) = beam_search([(2,)], 2, 3, 1.0, frozenset(), chain(table))
    assert (first.token_ids, first.finish_reason) == ((2, 2, 2), "length")
    assert second.finish_reason == "length"


@pytest.mark.parametrize(
    ("width", "max_tokens", "words"),
    [
        (0, 4, "beam_width must be"),
        (100, 4, "too much for a vocabulary"),
        (2, 512, "context is 512"),
        (2, 0, "max_tokens"),
    ],
)
def test_an_invalid_beam_search_raises_a_message(tiny_llama: Path, width: int, max_tokens: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LLM(tiny_llama, **KV).beam_search([[5, 6]], width, max_tokens)
