"""A mixture of experts by the kernels, in the fused decoder and in place of transformers' module.

How a router's logits become choices and weights is found by trying its module on random rows: transformers' routers differ
in that, and their names do not tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch

from sluice_engine.backend.cuda.feed_forward.dense import Dense, dense_of, dense_output
from sluice_engine.backend.cuda.ops import Ops
from sluice_engine.backend.cuda.ops.products import Product
from sluice_engine.model.decoder_parts import ExpertParts
from sluice_kernels import moe
from sluice_kernels.moe import ExpertWeights, Routing, RoutingRule, Shared

_TRIED: Final = 32  # random rows
_CLOSE: Final = 1e-2  # of a weight, which transformers rounds to the model's dtype


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """The expert that all rows have, and the row that gives the logit of its weight."""

    layer: Dense
    gate: Product


@dataclass(frozen=True, slots=True)
class Experts:
    """One layer's router [experts, hidden], experts and shared expert."""

    router: torch.Tensor
    rule: RoutingRule
    weights: ExpertWeights
    shared: SharedExpert | None


def check_experts(parts: ExpertParts) -> RoutingRule:
    """The layer's rule. Raises ValueError with a sentence for what the kernels do not support. Drops nothing."""
    rule = rule_of(parts.router)
    reason = moe.can_use(len(parts.gate_up), rule, parts.gate_up.dtype)
    if reason is not None:
        raise ValueError(reason)
    return rule


def experts_of(parts: ExpertParts) -> Experts:
    """The layer of these parts; the shared expert's are consumed. Raises ValueError as `check_experts` does."""
    rule = check_experts(parts)
    shared = None
    if parts.shared is not None:
        shared = SharedExpert(dense_of(parts.shared.layer), Product(parts.shared.gate.weight, parts.shared.gate.bias))
    weights = ExpertWeights(parts.gate_up.detach(), parts.down.detach())
    return Experts(parts.router.weight.detach(), rule, weights, shared)


def experts_output(layer: Experts, rows: torch.Tensor, ops: Ops) -> torch.Tensor:
    """rows [T, hidden] → [T, hidden]."""
    shared = None
    if layer.shared is not None:
        gate = layer.shared.gate
        out = dense_output(layer.shared.layer, rows, ops, ops.shared_down)
        shared = Shared(out, ops.shared_gate(rows, gate.weight, gate.bias))
    routing = ops.route(ops.router(rows, layer.router), layer.rule)
    return ops.experts(rows, layer.weights, routing, shared)


def compile_experts(layers: Iterator[Experts]) -> None:
    """Compile every kernel that a step of any size may need. Does nothing off CUDA."""
    seen = set()
    for layer in layers:
        shape = (layer.weights.gate_up.shape, layer.rule, layer.shared is None)
        if shape not in seen:
            seen.add(shape)
            row = layer.router.new_zeros(1, layer.router.shape[1])
            moe.warm(row, layer.weights, layer.rule.top_k, shared=layer.shared is not None)


@torch.inference_mode()
def rule_of(router: torch.nn.Module) -> RoutingRule:
    """The rule by which the router's module chooses. Raises ValueError if it is none that the kernels compute."""
    weight: torch.Tensor = router.weight
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(_TRIED, weight.shape[1], generator=generator).to(weight.device, weight.dtype)
    logits, weights, chosen = router(rows)
    expected = _by_expert(Routing(chosen, weights))
    for scoring in ("softmax", "sigmoid"):
        for renormalise in (True, False):
            rule = RoutingRule(chosen.shape[1], scoring, renormalise)
            got = _by_expert(moe.route(logits, rule))
            if torch.equal(got[0], expected[0]) and torch.allclose(got[1], expected[1], rtol=_CLOSE, atol=_CLOSE / 100):
                return rule
    raise ValueError("a router whose weights are softmax or sigmoid scores, renormalised or not")


def _by_expert(routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts in ascending order and their weights: the order of equal scores is not defined."""
    order = routing.experts.argsort(-1)
    return routing.experts.gather(-1, order).long(), routing.weights.float().gather(-1, order)
