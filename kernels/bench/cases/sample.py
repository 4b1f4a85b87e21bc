"""Correctness cases of `sample` and `token_logprobs`. Logits lie between NaN; unused bias entries and all slots that no row has
are poisoned, among them those whose number is a row's.

A token may differ from the reference's only where the number drawn is within 1e-6 of the border between two tokens.
"""

from dataclasses import dataclass
from typing import Final, TypeVar

import torch
from bench.cases.compare import same
from bench.cases.memory import Mismatch, guarded, poisoned

from sluice_kernels.sample.logprobs import logprobs_triton
from sluice_kernels.sample.reference import (
    Bias,
    Draws,
    Penalties,
    Rows,
    adjusted_reference,
    logprobs_reference,
    sample_reference,
)
from sluice_kernels.sample.triton import sample_triton

BORDER: Final = 1e-6
T = TypeVar("T", Rows, Draws, Penalties, Bias)


@dataclass(frozen=True)
class Case:
    """One call; each row has a slot of its own. `levels`: how many distinct logits there are, 0 for any (ties)."""

    rows: int
    vocabulary: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    levels: int = 0
    penalised: bool = False
    biased: bool = False
    masked: bool = False
    bad: str = ""  # what row 0 has, see `_logits`
    magnitude: float = 3.0
    dtype: torch.dtype = torch.float32
    logprobs: int = 0
    seed: int = 0


NAMED: Final = {
    "no rows": Case(0, 100),
    "greedy": Case(3, 1000, temperature=0.0, logprobs=5),
    "greedy, ties": Case(5, 1000, temperature=0.0, levels=3, logprobs=5),
    "one token": Case(2, 1, logprobs=1),
    "all tokens": Case(3, 1025),
    "all tokens, equal": Case(3, 1025, levels=1),
    "top-k": Case(3, 1025, top_k=10),
    "top-k of 1": Case(4, 100, top_k=1),
    "k beyond the vocabulary": Case(4, 100, top_k=1000),
    "k of the whole vocabulary": Case(4, 100, top_k=100, top_p=0.9),
    "top-k, ties at the border": Case(3, 700, top_k=20, levels=4),
    "top-p": Case(3, 1025, top_p=0.8),
    "top-p of 0": Case(4, 300, top_p=0.0),
    "top-p just below 1": Case(3, 1025, top_p=1.0 - 1e-12),
    "top-p, ties at the border": Case(3, 700, top_p=0.5, levels=4),
    "top-p, all equal": Case(3, 700, top_p=0.5, levels=1),
    "top-k and top-p": Case(3, 1025, top_k=50, top_p=0.7, magnitude=1.0),
    "top-k and top-p, ties": Case(3, 700, top_k=30, top_p=0.9, levels=5),
    "min-p": Case(3, 1025, min_p=0.1),
    "min-p, top-k and top-p": Case(3, 1025, min_p=0.05, top_k=40, top_p=0.95),
    "low temperature": Case(4, 300, temperature=1e-4),
    "high temperature": Case(4, 1025, temperature=50.0, top_p=0.9),
    "penalties": Case(3, 1025, penalised=True),
    "bias": Case(3, 1025, biased=True, temperature=0.5),
    "mask": Case(3, 1025, masked=True, top_p=0.9, logprobs=3),
    "everything, bfloat16": Case(
        3, 1500, 0.8, 100, 0.9, 0.01, penalised=True, biased=True, masked=True, dtype=torch.bfloat16, logprobs=20
    ),
    "NaN": Case(3, 300, bad="nan", top_k=5),
    "infinity": Case(3, 300, bad="infinity"),
    "all −infinity": Case(3, 300, bad="all −infinity", top_p=0.5),
    "NaN, greedy": Case(3, 300, temperature=0.0, bad="nan"),
    "infinity, greedy": Case(3, 300, temperature=0.0, bad="infinity"),
    "all −infinity, greedy": Case(3, 300, temperature=0.0, bad="all −infinity"),
    "a mask that bars all tokens": Case(3, 300, masked=True, bad="all barred", top_k=5),
    "a NaN that the mask bars": Case(3, 300, masked=True, bad="barred nan", top_p=0.9),
    "−infinity among the first k": Case(3, 1025, top_k=900, bad="half −infinity", logprobs=5),
    "−infinity within top-p": Case(3, 1025, top_p=0.999, bad="half −infinity"),
    "top-k, top-p of 1": Case(3, 1025, top_k=7, top_p=1.0),
    "k beyond the vocabulary, top-p of 0": Case(4, 100, top_k=1000, top_p=0.0),
    "min-p of 1": Case(3, 700, min_p=1.0, levels=4),
    "k of all candidates": Case(2, 8191, top_k=1024),
    "k beyond the candidates": Case(1, 5000, top_k=3000, top_p=0.99, magnitude=1.0),
    "more equal scores than candidates": Case(2, 6000, top_k=50, top_p=0.9, levels=2),
    "top-p beyond the candidates": Case(1, 5000, top_p=0.9, magnitude=0.5),
    "top-p of nearly equal scores, bfloat16": Case(1, 5000, top_p=0.6, magnitude=0.01, dtype=torch.bfloat16),
    "fewer finite scores than k": Case(2, 6000, top_k=1000, top_p=0.9, temperature=0.01),
    "8k tokens": Case(1, 8191, top_k=50, top_p=0.9, dtype=torch.bfloat16),
}
LARGE: Final = {
    f"{rows} × {vocabulary}, k {top_k}, p {top_p} {str(dtype).removeprefix('torch.')}": Case(
        rows, vocabulary, top_k=top_k, top_p=top_p, dtype=dtype, penalised=True, masked=True, logprobs=5
    )
    for dtype in (torch.bfloat16, torch.float32)
    for top_k, top_p in ((0, 1.0), (50, 1.0), (0, 0.95), (1000, 0.9))
    for rows, vocabulary in ((64, 128256), (3, 256000), (3, 255999), (17, 151937))
}


def compare(case: Case, device: str) -> float:
    """Runs the kernels and the references. Returns the largest error of logprobs relative to the allowed one. Raises
    Mismatch.
    """
    generator = torch.Generator().manual_seed(case.seed)
    logits = _logits(case, generator)
    rows, draws, penalties, bias = _parameters(case, generator)
    expected = sample_reference(logits, rows, draws, penalties, bias)
    given = poisoned(logits, 5, device)
    with guarded(device):
        got = sample_triton(
            given, _moved(rows, device), _moved(draws, device),
            None if penalties is None else _moved(penalties, device), None if bias is None else _moved(bias, device),
        ).cpu()  # fmt: skip
    for row in torch.nonzero(got != expected)[:, 0].tolist():
        scores = adjusted_reference(logits, rows, penalties, bias)[row]
        at = (int(rows.slots[row]), int(rows.positions[row]))
        if not _at_border(scores, draws, at, int(got[row])):
            raise Mismatch(f"{case}: row {row} has token {int(got[row])} where the reference has {int(expected[row])}")
    usable = expected >= 0
    if not case.logprobs or not bool(usable.any()):
        return 0.0
    with guarded(device):
        found = logprobs_triton(given, expected.to(device), case.logprobs)
    wanted = logprobs_reference(logits, expected, case.logprobs)
    if not torch.equal(found[2].cpu()[usable], wanted[2][usable]):
        raise Mismatch(f"{case}: the most likely tokens differ from the reference")
    return max(same(case, "logprobs", found[i].cpu()[usable], wanted[i][usable], 1e-6) for i in (0, 1))


def _at_border(scores: torch.Tensor, draws: Draws, at: tuple[int, int], token: int) -> bool:
    """Whether numbers within BORDER of the one drawn give the token too. `at`: slot and position."""
    if token < 0 or float(draws.temperature[at[0]]) == 0.0:
        return False
    near = set()
    for shift in (-BORDER, BORDER):
        moved = Draws(draws.temperature, draws.min_p, draws.top_k, draws.top_p * (1 + shift), draws.seeds)
        for step in (-BORDER, 0.0, BORDER):
            near.add(_drawn_at(scores, moved, at, step))
            near.add(_drawn_at(scores, draws, at, step))
    return token in near


def _drawn_at(scores: torch.Tensor, draws: Draws, at: tuple[int, int], step: float) -> int:
    from sluice_kernels.sample import reference

    slot, position = at
    uniform = reference.uniform_reference(draws.seeds[slot : slot + 1], torch.tensor([position]))[0]
    return int(reference._drawn(scores, draws, slot, (uniform + step).clamp(0.0, 1.0)))


def _logits(case: Case, generator: torch.Generator) -> torch.Tensor:
    logits = torch.randn(case.rows, case.vocabulary, generator=generator) * case.magnitude
    if case.levels:
        logits = torch.randint(0, case.levels, logits.shape, generator=generator).float()
    middle = case.vocabulary // 2
    if case.bad in ("nan", "barred nan"):
        logits[0, middle] = float("nan")
    elif case.bad == "infinity":
        logits[0, middle] = float("inf")
    elif case.bad == "all −infinity":
        logits[0] = -float("inf")
    elif case.bad == "half −infinity":
        logits[0, ::2] = -float("inf")
    return logits.to(case.dtype)


def _parameters(case: Case, generator: torch.Generator) -> tuple[Rows, Draws, Penalties | None, Bias | None]:
    rows, vocabulary = case.rows, case.vocabulary

    def column(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((rows,), value, dtype=dtype)

    mask = None
    if case.masked:
        mask = torch.randint(-(2**31), 2**31, (rows, -(-vocabulary // 32)), generator=generator).int()
    if mask is not None and case.bad == "all barred":
        mask[0] = 0
    if mask is not None and case.bad == "barred nan":
        mask[0, vocabulary // 2 // 32] = 0
    seeds = torch.randint(-(2**62), 2**62, (rows,), generator=generator)
    draws = Draws(
        column(case.temperature), column(case.min_p), column(case.top_k, torch.int32),
        column(case.top_p, torch.float64), seeds,
    )  # fmt: skip
    penalties = bias = None
    if case.penalised:
        counts = torch.randint(-3, 4, (rows, vocabulary), generator=generator).clamp(min=0).int()
        seen = (counts > 0) | (torch.rand(rows, vocabulary, generator=generator) < 0.1)
        penalties = Penalties(counts, seen, column(1.3), column(0.2), column(-0.5))
    if case.biased:
        ids = torch.stack([torch.randperm(vocabulary, generator=generator)[:9] for _ in range(rows)]).int()
        values = torch.randn(ids.shape, generator=generator) * 5
        counts = torch.arange(rows).clamp(max=ids.shape[1]).int()
        unused = torch.arange(ids.shape[1]) >= counts[:, None]
        bias = Bias(ids, values.masked_fill(unused, float("nan")), counts)
    slots = torch.arange(rows).flip(0).int() + rows
    return (
        Rows(slots, torch.arange(rows) + 7, mask), _by_slot(draws),
        None if penalties is None else _by_slot(penalties), None if bias is None else _by_slot(bias),
    )  # fmt: skip


def _by_slot(parameters: T) -> T:
    """Parameters by row → by slot: row i has the slot that is the i-th from the end, and the first half is poison."""
    placed = {}
    for name, value in vars(parameters).items():
        poison = torch.full_like(value, float("nan") if value.is_floating_point() else 1)
        placed[name] = torch.cat((poison, value.flip(0)))
    return type(parameters)(**placed)


def _moved(parameters: T, device: str) -> T:
    placed = {name: None if value is None else value.to(device) for name, value in vars(parameters).items()}
    return type(parameters)(**placed)
