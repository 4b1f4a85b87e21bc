"""Recognises models that the compiled decoder can compute: Llama's structure, optionally with query and key norms and
biases.

The parts are found by transformers' names for them. The names are not evidence of the computation:
`backend/cpu/acceptance.py` compares logits. torch runs all other models.
"""

from dataclasses import dataclass

import torch
from transformers.activations import SiLUActivation

from sluice_engine.model.attention import Rule
from sluice_engine.model.fusion import RMSNorm, as_rms_norm
from sluice_engine.model.introspection import Structure

_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_DYNAMIC_ROPE_TYPES = ("dynamic", "longrope")  # rotations whose angles depend on more than the position


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The parts of one decoder layer."""

    norm_before: RMSNorm
    query_key_value: tuple[torch.nn.Linear, ...]
    norm_query: RMSNorm | None
    norm_key: RMSNorm | None
    output: torch.nn.Linear
    norm_after: RMSNorm
    gate_up: tuple[torch.nn.Linear, ...]
    down: torch.nn.Linear
    rule: Rule


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
        layers = tuple(_layer(layer, call.rule) for layer, call in zip(names["layers"], structure.calls, strict=True))
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


def _layer(layer: torch.nn.Module, rule: Rule) -> LayerParts:
    attention, feed_forward = layer.get_submodule("self_attn"), layer.get_submodule("mlp")
    inside = _names(attention)
    if _names(layer) != _LAYER or inside - _HEAD_NORMS != _ATTENTION or _names(feed_forward) != _FEED_FORWARD:
        raise _UnknownStructure
    if not isinstance(feed_forward.act_fn, SiLUActivation | torch.nn.SiLU):
        raise _UnknownStructure
    return LayerParts(
        norm_before=_norm(layer.get_submodule("input_layernorm")),
        query_key_value=tuple(_linear(attention.get_submodule(name)) for name in ("q_proj", "k_proj", "v_proj")),
        norm_query=_norm(attention.get_submodule("q_norm")) if "q_norm" in inside else None,
        norm_key=_norm(attention.get_submodule("k_norm")) if "k_norm" in inside else None,
        output=_linear(attention.get_submodule("o_proj")),
        norm_after=_norm(layer.get_submodule("post_attention_layernorm")),
        gate_up=tuple(_linear(feed_forward.get_submodule(name)) for name in ("gate_proj", "up_proj")),
        down=_linear(feed_forward.get_submodule("down_proj")),
        rule=rule,
    )


def _names(module: torch.nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _norm(module: torch.nn.Module) -> RMSNorm:
    found = as_rms_norm(module)
    if found is None:
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
    linears = [
        linear for layer in layers for linear in (*layer.query_key_value, layer.output, *layer.gate_up, layer.down)
    ]
    widths = {tuple(linear.out_features for linear in (*layer.query_key_value, *layer.gate_up)) for layer in layers}
    return (
        {norm.epsilon for norm in norms if norm is not None} == {parts.epsilon}
        and len(widths) == 1
        and len({linear.weight.data_ptr() for linear in linears}) == len(linears)
        and getattr(parts.rotary, "rope_type", "") not in _DYNAMIC_ROPE_TYPES
    )
