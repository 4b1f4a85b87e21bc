"""Mixture of experts: routing and the experts' feed-forward layers. Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.moe.configs import MOST_EXPERTS, MOST_TOP_K, all_configs
from sluice_kernels.moe.reference import (
    SCORINGS,
    ExpertWeights,
    Routing,
    RoutingRule,
    Shared,
    moe_reference,
    route_reference,
)

__all__ = ["ExpertWeights", "Routing", "RoutingRule", "Shared", "can_use", "moe", "route", "warm"]


def can_use(experts: int, rule: RoutingRule, dtype: torch.dtype) -> str | None:
    """None if the kernels support this, else the reason."""
    if not 1 <= experts <= MOST_EXPERTS:
        return f"moe supports 1 to {MOST_EXPERTS} experts, not {experts}"
    if not 1 <= rule.top_k <= min(MOST_TOP_K, experts):
        return f"moe supports 1 to {min(MOST_TOP_K, experts)} of {experts} experts per row, not {rule.top_k}"
    if rule.scoring not in SCORINGS:
        return f"moe supports the scorings {' and '.join(SCORINGS)}, not {rule.scoring}"
    if dtype not in arguments.FLOATS:
        return f"moe supports float32, float16 and bfloat16, not {dtype}"
    return None


def route(logits: torch.Tensor, rule: RoutingRule) -> Routing:
    """The experts of each row by the router's logits [rows, experts]; any row stride. Scores are float32.

    Of equal logits the first expert is chosen first. Raises ValueError for an argument that does not match.
    """
    arguments.check_shape("logits", logits, "[rows, experts]", None, None)
    arguments.check_supported("logits", can_use(logits.shape[1], rule, logits.dtype))
    arguments.check_rows("logits", logits)
    if launch.is_compiled(logits):
        from sluice_kernels.moe.routing import route_triton

        return route_triton(logits, rule)
    return route_reference(logits, rule)


def moe(x: torch.Tensor, weights: ExpertWeights, routing: Routing, shared: Shared | None = None) -> torch.Tensor:
    """The sum of the chosen experts' outputs times their weights, see `moe_reference`; any row stride of x.

    The experts in `routing` must be those of `route`: they are not checked. Returns [rows, hidden] in x's dtype. Raises
    ValueError for an argument that does not match.
    """
    _check(x, weights, routing, shared)
    if launch.is_compiled(x):
        from sluice_kernels.moe.grouped import moe_grouped, uses_grouped
        from sluice_kernels.moe.triton import moe_triton

        return (moe_grouped if uses_grouped(x, weights, routing) else moe_triton)(x, weights, routing, shared)
    return moe_reference(x, weights, routing, shared)


def warm(x: torch.Tensor, weights: ExpertWeights, top_k: int, *, shared: bool = False) -> None:
    """Compiles every kernel that `moe` may need for rows like x [1, hidden], whatever the size of the step."""
    if not launch.is_compiled(x):
        return
    from sluice_kernels.moe.grouped import moe_grouped, uses_grouped
    from sluice_kernels.moe.routing import CHUNK
    from sluice_kernels.moe.triton import moe_triton

    experts = weights.gate_up.shape[0]
    for rows in (1, CHUNK // top_k + 1):  # one chunk of pairs, and several
        given = x.expand(rows, -1).contiguous()
        routing = Routing(
            torch.zeros(rows, top_k, dtype=torch.int32, device=x.device), torch.zeros(rows, top_k, device=x.device)
        )
        others = Shared(given, given[:, :1].contiguous()) if shared else None
        for configs in all_configs(launch.device_of(x).architecture, x.dtype):
            moe_triton(given, weights, routing, others, configs)
        large = Routing(*(each[:1].expand(experts << 8, -1) for each in (routing.experts, routing.weights)))
        if uses_grouped(x, weights, large):
            moe_grouped(given, weights, routing, others)


def _check(x: torch.Tensor, weights: ExpertWeights, routing: Routing, shared: Shared | None) -> None:
    arguments.check_shape("x", x, "[rows, hidden]", None, None)
    arguments.check_rows("x", x)
    count, hidden = x.shape
    arguments.check_shape("weights.down", weights.down, "[experts, hidden, inner]", None, hidden, None)
    experts, _, inner = weights.down.shape
    layout = "[experts, 2 · inner, hidden]"
    arguments.check_shape("weights.gate_up", weights.gate_up, layout, experts, 2 * inner, hidden)
    arguments.check_shape("routing.experts", routing.experts, "[rows, top_k]", count, None)
    top_k = routing.experts.shape[1]
    arguments.check_shape("routing.weights", routing.weights, "[rows, top_k]", count, top_k)
    arguments.check_supported("x", can_use(experts, RoutingRule(top_k), x.dtype))
    arguments.check_dtype("routing.experts", routing.experts, torch.int32)
    arguments.check_dtype("routing.weights", routing.weights, torch.float32)
    tensors = {
        "weights.gate_up": weights.gate_up, "weights.down": weights.down,
        "routing.experts": routing.experts, "routing.weights": routing.weights,
    }  # fmt: skip
    for name, tensor in tensors.items():
        arguments.check_contiguous(name, tensor)
        if name.startswith("weights"):
            arguments.check_dtype(name, tensor, x.dtype)
    if shared is not None:
        arguments.check_shape("shared.out", shared.out, "[rows, hidden]", count, hidden)
        arguments.check_shape("shared.gate", shared.gate, "[rows, 1]", count, 1)
        for name, tensor in (("shared.out", shared.out), ("shared.gate", shared.gate)):
            arguments.check_dtype(name, tensor, x.dtype)
            arguments.check_rows(name, tensor)
            tensors[name] = tensor
    arguments.check_device(x, **tensors)
