"""Top-k and top-p from a few candidates sample the same as a complete sort, ties and flat rows included."""

import numpy as np
import pytest
import torch

from sluice_engine.sampling import top_k_top_p
from sluice_engine.sampling.rng import uniform
from sluice_engine.sampling.top_k_top_p import MARGIN, NUCLEUS, draw_truncated

WIDTH = 2048


def rows(kind: str, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(count, WIDTH, generator=generator)
    scores = {
        "peaked": noise * 4,
        "flat": noise * 0.1,
        "ties": (noise * 2).bfloat16().float().round(decimals=0),
        "equal": torch.zeros(count, WIDTH),
        "few": noise.masked_fill(torch.rand(count, WIDTH, generator=generator) > 0.002, float("-inf")),
    }[kind]
    scores[:, 7] = scores.amax(dim=-1).clamp(min=0.0)
    return scores - scores.amax(dim=-1, keepdim=True)


@pytest.mark.parametrize("kind", ["peaked", "flat", "ties", "equal", "few"])
def test_candidates_and_a_whole_sort_draw_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    top_k = torch.tensor([0, 0, 0, 1, 5, 40, 200, WIDTH, 10 * WIDTH])
    top_p = torch.tensor([0.1, 0.9, 1.0, 1.0, 0.8, 1.0, 0.99, 0.7, 1.0], dtype=torch.float64)
    count = 20 * len(top_k)
    scores = rows(kind, count)
    top_k, top_p = top_k.repeat(20)[:, None], top_p.repeat(20)[:, None]
    min_p = torch.tensor([0.0, 0.0, 0.0, 0.3]).repeat(count // 4)[:, None]
    draws = torch.from_numpy(uniform(np.full(count, 3, dtype=np.uint64), np.arange(count)))[:, None]
    by_candidates = draw_truncated(scores, min_p, top_k, top_p, draws)
    alone = torch.cat(
        [
            draw_truncated(*(column[row : row + 1] for column in (scores, min_p, top_k, top_p, draws)))
            for row in range(count)
        ]
    )
    monkeypatch.setattr(top_k_top_p, "NUCLEUS", WIDTH)  # too many candidates: everything is sorted
    by_sort = draw_truncated(scores, min_p, top_k, top_p, draws)
    assert torch.equal(by_candidates, by_sort)
    assert torch.equal(by_candidates, alone)


def test_a_peaked_row_is_settled_without_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(NUCLEUS, 40 + MARGIN) * 4 <= WIDTH

    def never(_: object) -> torch.Tensor:
        raise AssertionError("sorted the vocabulary")

    monkeypatch.setattr(top_k_top_p, "_draw_sorted", never)
    scores = rows("peaked", 8)
    column = torch.full((8, 1), 0.5, dtype=torch.float64)
    zeros = torch.zeros(8, 1)
    draw_truncated(scores, zeros, torch.zeros(8, 1, dtype=torch.int64), column, column)
    draw_truncated(scores, zeros, torch.full((8, 1), 40), torch.ones(8, 1, dtype=torch.float64), column)


def test_a_high_temperature_does_not_blur_the_top_k() -> None:
    """Scores so close that their weights are equal in float32 keep their order."""
    scores = -torch.arange(WIDTH).flip(0)[None] * 1e-12  # the last ids are the most likely
    one, draws = torch.ones(1, 1, dtype=torch.float64), torch.tensor([[0.99]], dtype=torch.float64)
    assert int(draw_truncated(scores, torch.zeros(1, 1), torch.tensor([[1]]), one, draws)) == WIDTH - 1
