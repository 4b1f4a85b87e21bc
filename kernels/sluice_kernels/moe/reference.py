"""A mixture of experts in plain torch: the specification of the kernels.

A pair is one row's choice of one expert. Pairs are sorted by expert into places, and each expert's places begin at a
multiple of the tile, so that a tile of places has one expert. Pairs of one expert keep their order.
"""

from dataclasses import dataclass
from typing import Final, Literal

import torch

from sluice_kernels.silu_mul.reference import silu_mul_reference

Scoring = Literal["softmax", "sigmoid"]
SCORINGS: Final = ("softmax", "sigmoid")
SMALLEST_SUM: Final = 1e-20  # sigmoids of one row may all be zero


@dataclass(frozen=True)
class RoutingRule:
    """How a router's logits choose experts. `renormalise`: the weights of a row are divided by their sum."""

    top_k: int
    scoring: Scoring = "softmax"
    renormalise: bool = True


@dataclass(frozen=True)
class Routing:
    """The chosen experts of each row, the largest score first, and their weights."""

    experts: torch.Tensor  # [rows, top_k] int32
    weights: torch.Tensor  # [rows, top_k] float32


@dataclass(frozen=True)
class ExpertWeights:
    """The weights of all experts of a layer, the gate before up."""

    gate_up: torch.Tensor  # [experts, 2 · inner, hidden]
    down: torch.Tensor  # [experts, hidden, inner]


@dataclass(frozen=True)
class Shared:
    """The output of the expert that all rows have, whose weight is the sigmoid of `gate`."""

    out: torch.Tensor  # [rows, hidden]
    gate: torch.Tensor  # [rows, 1]


@dataclass(frozen=True)
class Alignment:
    """Pairs sorted by expert. Between an expert's end and the next tile, `order` is undefined."""

    order: torch.Tensor  # [places] int32: the pair at each place
    places: torch.Tensor  # [rows · top_k] int32: the place of each pair
    tile_experts: torch.Tensor  # [tiles] int32: the expert of each tile; the number of experts for an unused tile
    ends: torch.Tensor  # [experts] int32: the place after each expert's last


def tile_count(pairs: int, experts: int, tile: int) -> int:
    """The most tiles that the pairs can need, however they are distributed."""
    return (pairs + min(experts, pairs) * (tile - 1)) // tile


def route_reference(logits: torch.Tensor, rule: RoutingRule) -> Routing:
    """logits [rows, experts] → the top_k largest of each row, of equal ones the first; NaN is larger than any number.
    Scores are computed in float32.
    """
    values = logits.float()
    keys = torch.where(values.isnan(), torch.inf, values)
    chosen = keys.sort(dim=-1, descending=True, stable=True).indices[:, : rule.top_k]
    scores = values.softmax(-1) if rule.scoring == "softmax" else values.sigmoid()
    weights = scores.gather(-1, chosen)
    if rule.renormalise:
        weights = weights / (weights.sum(-1, keepdim=True) + SMALLEST_SUM)
    return Routing(chosen.to(torch.int32), weights)


def align_reference(chosen: torch.Tensor, experts: int, tile: int) -> Alignment:
    """chosen [rows, top_k] int32 → the alignment of its rows · top_k pairs; pair p is choice p % top_k of row p // top_k."""
    flat = chosen.flatten().long()
    counts = torch.bincount(flat, minlength=experts)
    padded = (counts + tile - 1) // tile * tile
    stops = padded.cumsum(0)
    ends = stops - padded + counts
    sorted_pairs = flat.sort(stable=True).indices
    tiles = tile_count(len(flat), experts, tile)
    order = torch.zeros(tiles * tile, dtype=torch.int32, device=chosen.device)
    places = torch.zeros(len(flat), dtype=torch.int32, device=chosen.device)
    within = torch.arange(len(flat), device=chosen.device) - (counts.cumsum(0) - counts)[flat[sorted_pairs]]
    at = (stops - padded)[flat[sorted_pairs]] + within
    order[at] = sorted_pairs.int()
    places[sorted_pairs] = at.int()
    starts = torch.arange(0, tiles * tile, tile, device=chosen.device)
    return Alignment(order, places, torch.searchsorted(stops, starts, right=True).int(), ends.int())


def moe_reference(
    x: torch.Tensor, weights: ExpertWeights, routing: Routing, shared: Shared | None = None
) -> torch.Tensor:
    """x [rows, hidden] → [rows, hidden] in its dtype: the sum of the chosen experts' outputs times their weights.

    An expert's output is down · (silu(gate · x) · (up · x)). Products and sums are computed in float32, and rounded to x's
    dtype after the activation, after each expert's output and after the sum, whose order is that of the choices.
    """
    outputs = x.new_zeros(*routing.experts.shape, x.shape[1])
    for expert in routing.experts.unique().tolist():
        rows, choices = (routing.experts == expert).nonzero(as_tuple=True)
        gate_up = x[rows].float() @ weights.gate_up[expert].float().T
        activated = silu_mul_reference(gate_up, "silu").to(x.dtype)
        outputs[rows, choices] = (activated.float() @ weights.down[expert].float().T).to(x.dtype)
    return combine_reference(outputs, routing.weights, shared)


def combine_reference(outputs: torch.Tensor, weights: torch.Tensor, shared: Shared | None) -> torch.Tensor:
    """outputs [rows, top_k, hidden], weights [rows, top_k] → [rows, hidden], the shared expert last."""
    total = torch.zeros_like(outputs[:, 0], dtype=torch.float32)
    for choice in range(weights.shape[1]):
        total += weights[:, choice, None] * outputs[:, choice].float()
    if shared is not None:
        total += shared.gate.float().sigmoid() * shared.out.float()
    return total.to(outputs.dtype)
