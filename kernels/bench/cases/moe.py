"""Correctness cases of `route` and `moe`. Rows lie between NaN, weights of experts without rows are NaN, outputs are
guarded."""

from dataclasses import dataclass
from typing import Final, Literal

import torch
from bench.cases.compare import ELEMENT, same
from bench.cases.memory import Mismatch, guarded, poisoned, surrounded

from sluice_kernels.moe.configs import EXACT, FEW, MANY, SOME, Configs
from sluice_kernels.moe.grouped import moe_grouped
from sluice_kernels.moe.reference import (
    Alignment,
    ExpertWeights,
    Routing,
    RoutingRule,
    Scoring,
    Shared,
    align_reference,
    moe_reference,
    route_reference,
)
from sluice_kernels.moe.routing import align_triton, route_triton
from sluice_kernels.moe.triton import moe_triton

ROUNDING: Final = 1e-5  # of the largest output: sums of the same products in another order
FORCED: Final[dict[int | None, Configs]] = {16: FEW, 64: SOME, 128: MANY, 32: EXACT}
POISON: Final = 0x7FFFFFFF


@dataclass(frozen=True)
class Case:
    """One call. `tile` fixes the configurations (32: those of float32), 1 is torch's grouped product, None follows the
    shapes. `load`: which experts the rows choose. `bad_row` gets a NaN, which must stay in that row.
    """

    rows: int
    experts: int
    top_k: int
    hidden: int
    inner: int
    dtype: torch.dtype = torch.float32
    scoring: Scoring = "softmax"
    renormalise: bool = True
    load: Literal["random", "one", "first half", "equal logits"] = "random"
    shared: bool = False
    tile: int | None = None
    magnitude: float = 1.0
    padding: int = 3
    bad_row: int | None = None
    seed: int = 0


BF16, FP16 = torch.bfloat16, torch.float16
NAMED: Final = {
    "no rows": Case(0, 4, 2, 32, 16),
    "one row, one expert, one column": Case(1, 1, 1, 1, 1),
    "one row": Case(1, 8, 2, 64, 48, BF16),
    **{f"top-{k} of 9, odd": Case(5, 9, k, 33, 17, BF16, renormalise=k % 2 == 0) for k in (4, 5, 6, 7)},
    "one expert takes all, top-1, one row per tile more": Case(17, 4, 1, 32, 16, BF16, load="one", tile=16),
    "top-1": Case(9, 4, 1, 40, 24, FP16, renormalise=False),
    "top-8 of 8": Case(5, 8, 8, 32, 32, BF16),
    "top-8 of 160": Case(7, 160, 8, 32, 16, BF16),
    "odd widths": Case(6, 5, 3, 37, 29, BF16),
    "widths over several tiles": Case(3, 4, 2, 197, 131, BF16, tile=16),
    "one expert takes all": Case(40, 6, 1, 33, 20, BF16, load="one", tile=16),
    "half of the experts are empty": Case(20, 8, 2, 32, 16, FP16, load="first half"),
    "equal logits": Case(4, 6, 3, 32, 16, load="equal logits"),
    "sigmoid": Case(8, 8, 2, 32, 16, BF16, scoring="sigmoid"),
    "sigmoid, not renormalised": Case(8, 8, 2, 32, 16, scoring="sigmoid", renormalise=False),
    "a shared expert": Case(6, 4, 2, 40, 24, BF16, shared=True),
    "several chunks of pairs": Case(70, 9, 8, 16, 16, BF16, tile=16),
    "tiles of 64": Case(70, 3, 2, 48, 40, BF16, tile=64),
    "tiles of 128": Case(80, 3, 2, 150, 140, BF16, tile=128),
    "torch's grouped product": Case(24, 4, 2, 32, 16, BF16, tile=1),
    "torch's grouped product, one takes all": Case(24, 4, 1, 32, 16, BF16, load="one", tile=1, shared=True),
    "saturated": Case(6, 4, 2, 32, 16, magnitude=100.0),
    "all zero": Case(3, 4, 2, 32, 16, magnitude=0.0),
    "a NaN in one row": Case(20, 4, 2, 32, 16, bad_row=7),
    "a NaN beside a shared expert": Case(20, 4, 2, 32, 16, BF16, shared=True, bad_row=19),
}
LARGE: Final = {
    f"{rows} rows, top-{top_k} of {experts}, {hidden} × {inner}, {str(dtype).removeprefix('torch.')}, tile {tile}": Case(
        rows, experts, top_k, hidden, inner, dtype, tile=tile
    )
    for experts, top_k, hidden, inner in ((8, 2, 4096, 14336), (128, 8, 2048, 768), (60, 4, 2048, 1408))
    for rows, dtype, tile in (
        (1, BF16, None), (64, BF16, None), (256, FP16, 64), (1000, FP16, 128), (4096, BF16, 128), (4096, BF16, 1),
    )
}  # fmt: skip


def compare(case: Case, device: str) -> float:
    """Runs the kernels and their references. Returns the largest error relative to the allowed one. Raises Mismatch."""
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(case.dtype)

    x = normal(case.rows, case.hidden, scale=case.magnitude)
    logits = _logits(case, generator)
    if case.bad_row is not None:
        x[case.bad_row, 0] = float("nan")
        logits[case.bad_row, 1] = float("nan")
    rule = RoutingRule(case.top_k, case.scoring, case.renormalise)
    with guarded(device):
        found = route_triton(poisoned(logits, case.padding, device), rule)
    routing = route_reference(logits, rule)
    if not torch.equal(found.experts.cpu(), routing.experts):
        raise Mismatch(f"{case}: other experts than the reference")
    worst = same(case, "weights", found.weights, routing.weights, slack=1e-6)
    weights = ExpertWeights(
        normal(case.experts, 2 * case.inner, case.hidden, scale=case.hidden**-0.5),
        normal(case.experts, case.hidden, case.inner, scale=case.inner**-0.5),
    )
    idle = torch.tensor([expert for expert in range(case.experts) if not bool((routing.experts == expert).any())])
    for tensor in (weights.gate_up, weights.down):
        tensor[idle.long()] = float("nan")
    shared = Shared(normal(case.rows, case.hidden), normal(case.rows, 1)) if case.shared else None
    got = _run(case, poisoned(x, case.padding, device), weights, routing, shared, device)
    expected = moe_reference(x, weights, routing, shared)
    return max(worst, same(case, "out", got, expected, slack=max(ROUNDING, ELEMENT[case.dtype])))


def _run(
    case: Case, x: torch.Tensor, weights: ExpertWeights, routing: Routing, shared: Shared | None, device: str
) -> torch.Tensor:
    placed = ExpertWeights(*(surrounded(each, float("nan"), device) for each in (weights.gate_up, weights.down)))
    chosen = surrounded(routing.experts, POISON, device)
    on_device = Routing(chosen, surrounded(routing.weights, float("nan"), device))
    others = None
    if shared is not None:
        others = Shared(*(poisoned(each, case.padding, device) for each in (shared.out, shared.gate)))
    if case.rows:
        _check_alignment(case, routing.experts, chosen, device)
    with guarded(device):
        if case.tile == 1:
            return moe_grouped(x, placed, on_device, others)
        return moe_triton(x, placed, on_device, others, None if case.tile is None else FORCED[case.tile])


def _check_alignment(case: Case, chosen: torch.Tensor, on_device: torch.Tensor, device: str) -> None:
    tile = case.tile or 16
    with guarded(device):
        got = align_triton(on_device, case.experts, tile)
    expected = align_reference(chosen, case.experts, tile)
    for name in ("places", "tile_experts", "ends"):
        if not torch.equal(getattr(got, name).cpu(), getattr(expected, name)):
            raise Mismatch(f"{case}: {name} is {getattr(got, name).tolist()}, not {getattr(expected, name).tolist()}")
    at = expected.places.long()
    if not torch.equal(_order(got)[at], expected.order[at]):
        raise Mismatch(f"{case}: another order than the reference")


def _order(aligned: Alignment) -> torch.Tensor:
    return aligned.order.cpu()


def _logits(case: Case, generator: torch.Generator) -> torch.Tensor:
    logits = torch.randn(case.rows, case.experts, generator=generator) * 3.0
    if case.load == "equal logits":
        logits.zero_()
    elif case.load == "one":
        logits[:, case.experts // 2] = 50.0
    elif case.load == "first half":
        logits[:, case.experts // 2 :] = -50.0
    return logits.to(case.dtype)
