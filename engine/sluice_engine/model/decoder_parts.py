"""Recognises models that a decoder of our own can compute: Llama's structure, optionally with query and key norms, biases
and mixtures of experts.

The parts are found by transformers' names for them. The names are not evidence of the computation:
each backend's `acceptance.py` compares logits. torch runs all other models.
"""

from dataclasses import dataclass

import torch
from transformers.activations import SiLUActivation

from sluice_engine.model.attention import AttentionCall, Rule
from sluice_engine.model.fusion import RMSNorm, as_rms_norm
from sluice_engine.model.introspection import Structure

_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_MIXTURE = {"gate", "experts"}
_SHARED_EXPERT = {"shared_expert", "shared_expert_gate"}
_EXPERT_WEIGHTS = {"gate_up_proj", "down_proj"}
_DYNAMIC_ROPE_TYPES = ("dynamic", "longrope")  # rotations whose angles depend on more than the position


@dataclass(frozen=True, slots=True)
class DenseParts:
    """A feed-forward layer that all tokens share."""

    gate_up: tuple[torch.nn.Linear, ...]
    down: torch.nn.Linear


@dataclass(frozen=True, slots=True)
class SharedExpertParts:
    """An expert of all tokens; its weight is the sigmoid of `gate`'s output."""

    layer: DenseParts
    gate: torch.nn.Linear


@dataclass(frozen=True, slots=True)
class ExpertParts:
    """A mixture of experts. The router [experts, hidden] returns its logits, and the weights and experts of each row."""

    router: torch.nn.Module
    gate_up: torch.Tensor  # [experts, 2 · inner, hidden], the gates first
    down: torch.Tensor  # [experts, hidden, inner]
    shared: SharedExpertParts | None


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The parts of one decoder layer."""

    norm_before: RMSNorm
    query_key_value: tuple[torch.nn.Linear, ...]
    norm_query: RMSNorm | None
    norm_key: RMSNorm | None
    output: torch.nn.Linear
    norm_after: RMSNorm
    feed_forward: DenseParts | ExpertParts
    rule: Rule

    @property
    def dense_parts(self) -> tuple[DenseParts, ...]:
        """The feed-forward layer or the shared expert, if there is one."""
        if isinstance(self.feed_forward, DenseParts):
            return (self.feed_forward,)
        return () if self.feed_forward.shared is None else (self.feed_forward.shared.layer,)

    @property
    def dense(self) -> DenseParts:
        """The feed-forward layer. Raises ValueError for a mixture of experts."""
        if isinstance(self.feed_forward, DenseParts):
            return self.feed_forward
        raise ValueError("mixtures of experts")


@dataclass(frozen=True, slots=True)
class DecoderParts:
    """The parts of the whole model."""

    base: torch.nn.Module
    embedding: torch.nn.Embedding
    layers: tuple[LayerParts, ...]
    norm_last: RMSNorm
    head: torch.nn.Linear
    rotary: torch.nn.Module
    heads: int
    epsilon: float

    @property
    def tied(self) -> bool:
        """True if the head shares the embedding's weight."""
        return self.head.weight.data_ptr() == self.embedding.weight.data_ptr()

    @property
    def dense(self) -> bool:
        """True if no layer is a mixture of experts."""
        return all(isinstance(layer.feed_forward, DenseParts) for layer in self.layers)


class _UnknownStructure(Exception):
    """The model has a different structure."""


@torch.inference_mode()
def recognise(module: torch.nn.Module, structure: Structure) -> DecoderParts | None:
    """The parts of a model with Llama's structure; None for any other model."""
    base = module.base_model
    try:
        names = dict(base.named_children())
        if set(names) != {"embed_tokens", "layers", "norm", "rotary_emb"} or len(names["layers"]) != len(
            structure.calls
        ):
            raise _UnknownStructure
        layers = tuple(_layer(layer, call) for layer, call in zip(names["layers"], structure.calls, strict=True))
        parts = DecoderParts(
            base=base,
            embedding=names["embed_tokens"],
            layers=layers,
            norm_last=_norm(names["norm"]),
            head=_linear(module.get_output_embeddings()),
            rotary=names["rotary_emb"],
            heads=layers[0].query_key_value[0].out_features // structure.calls[0].key_dim,
            epsilon=_norm(names["norm"]).epsilon,
        )
    except (_UnknownStructure, AttributeError, KeyError):
        return None
    return parts if _is_uniform(parts) else None


def _layer(layer: torch.nn.Module, call: AttentionCall) -> LayerParts:
    attention = layer.get_submodule("self_attn")
    inside = _names(attention)
    if _names(layer) != _LAYER or inside - _HEAD_NORMS != _ATTENTION:
        raise _UnknownStructure
    return LayerParts(
        norm_before=_norm(layer.get_submodule("input_layernorm")),
        query_key_value=tuple(_linear(attention.get_submodule(name)) for name in ("q_proj", "k_proj", "v_proj")),
        norm_query=_head_norm(attention.get_submodule("q_norm"), call) if "q_norm" in inside else None,
        norm_key=_head_norm(attention.get_submodule("k_norm"), call) if "k_norm" in inside else None,
        output=_linear(attention.get_submodule("o_proj")),
        norm_after=_norm(layer.get_submodule("post_attention_layernorm")),
        feed_forward=_feed_forward(layer.get_submodule("mlp")),
        rule=call.rule,
    )


def mixture_of_experts(module: torch.nn.Module) -> ExpertParts | None:
    """The parts of a module that is a mixture of experts; None for any other module."""
    try:
        return _experts(module)
    except (_UnknownStructure, AttributeError):
        return None


def _feed_forward(module: torch.nn.Module) -> DenseParts | ExpertParts:
    return _experts(module) if "experts" in _names(module) else _dense(module)


def _dense(module: torch.nn.Module) -> DenseParts:
    if _names(module) != _FEED_FORWARD:
        raise _UnknownStructure
    _check_activation(module)
    gate_up = tuple(_linear(module.get_submodule(name)) for name in ("gate_proj", "up_proj"))
    return DenseParts(gate_up, _linear(module.get_submodule("down_proj")))


def _experts(module: torch.nn.Module) -> ExpertParts:
    inside, router, experts = _names(module), module.get_submodule("gate"), module.get_submodule("experts")
    if inside not in (_MIXTURE, _MIXTURE | _SHARED_EXPERT):
        raise _UnknownStructure
    if _tensors(router) != {"weight"} or _tensors(experts) != _EXPERT_WEIGHTS or _names(router):
        raise _UnknownStructure
    _check_activation(experts)
    gate_up, down = experts.get_parameter("gate_up_proj"), experts.get_parameter("down_proj")
    count, hidden = router.get_parameter("weight").shape
    if gate_up.shape != (count, 2 * down.shape[-1], hidden) or down.shape != (count, hidden, down.shape[-1]):
        raise _UnknownStructure
    shared = None
    if inside != _MIXTURE:
        gate = _linear(module.get_submodule("shared_expert_gate"))
        shared = SharedExpertParts(_dense(module.get_submodule("shared_expert")), gate)
    return ExpertParts(router, gate_up, down, shared)


def _check_activation(module: torch.nn.Module) -> None:
    if not isinstance(module.act_fn, SiLUActivation | torch.nn.SiLU):
        raise _UnknownStructure


def _tensors(module: torch.nn.Module) -> set[str]:
    """Its own parameters and buffers."""
    return {name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))}


def _names(module: torch.nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _norm(module: torch.nn.Module) -> RMSNorm:
    found = as_rms_norm(module)
    if found is None:
        raise _UnknownStructure
    return found


def _head_norm(module: torch.nn.Module, call: AttentionCall) -> RMSNorm:
    found = _norm(module)
    if found.weight.shape != (call.key_dim,):  # a norm of all heads together
        raise _UnknownStructure
    return found


def _linear(module: torch.nn.Module) -> torch.nn.Linear:
    if type(module) is not torch.nn.Linear:
        raise _UnknownStructure
    return module


def _is_uniform(parts: DecoderParts) -> bool:
    """True if all norms share one epsilon, all layers have the same sizes, and no two linear layers share a weight."""
    layers = parts.layers
    norms = [
        norm for layer in layers for norm in (layer.norm_before, layer.norm_after, layer.norm_query, layer.norm_key)
    ]
    dense = [layer.feed_forward for layer in layers if isinstance(layer.feed_forward, DenseParts)]
    linears = [linear for layer in layers for linear in (*layer.query_key_value, layer.output)]
    linears += [linear for each in dense for linear in (*each.gate_up, each.down)]
    widths = {tuple(linear.out_features for linear in layer.query_key_value) for layer in layers}
    inner = {tuple(linear.out_features for linear in each.gate_up) for each in dense}
    return (
        {norm.epsilon for norm in norms if norm is not None} == {parts.epsilon}
        and len(widths) == 1
        and len(inner) <= 1
        and len({linear.weight.data_ptr() for linear in linears}) == len(linears)
        and getattr(parts.rotary, "rope_type", "") not in _DYNAMIC_ROPE_TYPES
    )
