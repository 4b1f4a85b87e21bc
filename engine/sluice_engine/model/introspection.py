"""Determines a loaded model's structure by one pass over two tokens, and whether this engine can serve it.

There is no list of model names: the pass records each layer's attention calls, and each rule below names what the
engine lacks. A model that violates a rule is rejected at load with that sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import transformers

from sluice.models.support import ATTENDING, supported
from sluice_engine.errors import ModelInvalid, UnsupportedArchitecture
from sluice_engine.model.attention import AttentionCall
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.layer_groups import group_layers


@dataclass(frozen=True, slots=True)
class SharedInputs:
    """Linear layers of one module with the same input tensor: the query, key and value projections of an attention, or
    the gate and up projections of a feed-forward layer.
    """

    parent: torch.nn.Module
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """The recorded attention calls and linear layer groups of a model."""

    calls: tuple[AttentionCall, ...]
    shared_inputs: tuple[SharedInputs, ...]

    def kv_shape(self, dtype: torch.dtype) -> KVShape:
        """KV size per token and layer, equal for all layers once `check` has passed, and the layer groups."""
        first, groups = self.calls[0], group_layers([call.rule.window for call in self.calls])
        return KVShape(len(self.calls), first.kv_heads, first.key_dim, dtype, groups)


@torch.inference_mode()
def observe(module: torch.nn.Module, device: torch.device, *, generates: bool = True) -> Structure:
    """Run the model over two tokens with an attention function that records its calls and computes nothing. With
    `generates`, the last token's logits are requested.

    Raises ModelInvalid when the model cannot be called as the engine calls it.
    """
    calls: list[AttentionCall] = []
    fed: dict[tuple[int, int], list[str]] = {}
    parents: dict[int, torch.nn.Module] = {}
    inputs: list[torch.Tensor] = []  # kept alive, so that ids stay unique

    def note(parent: torch.nn.Module, name: str) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], None]:
        def hook(_: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            inputs.append(args[0])
            parents[id(parent)] = parent
            fed.setdefault((id(parent), id(args[0])), []).append(name)

        return hook

    hooks = [
        child.register_forward_pre_hook(note(parent, name))
        for parent in module.modules()
        for name, child in parent.named_children()
        if type(child) is torch.nn.Linear
    ]
    positions = torch.arange(2, device=device)
    asked = {"logits_to_keep": positions[-1:]} if generates else {}
    try:
        module(
            input_ids=positions.unsqueeze(0),
            position_ids=positions.unsqueeze(0),
            use_cache=False,
            sluice_calls=calls,
            **asked,
        )
    except Exception as error:
        raise ModelInvalid(
            f"{type(module).__name__} cannot be run as this engine runs models, with token and position ids of a flat "
            f"batch and attention of its own: {error}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    shared_inputs = tuple(
        SharedInputs(parents[parent], tuple(names)) for (parent, _), names in fed.items() if len(names) > 1
    )
    return Structure(tuple(calls), shared_inputs)


def check(
    module: torch.nn.Module, config: transformers.PretrainedConfig, structure: Structure, *, generates: bool = True
) -> None:
    """Raises UnsupportedArchitecture, naming what is missing, for a model structure that this engine cannot compute.
    Without generation nothing is cached, so layers may differ in KV size and attention may be bidirectional.
    """
    for rule in _GENERATION_RULES if generates else _POOLING_RULES:
        missing = rule(module, config, structure.calls)
        if missing is not None:
            raise UnsupportedArchitecture(
                f"Model type {config.model_type!r} cannot be served: {missing}. {supported()}"
            )


def check_config(config: transformers.PretrainedConfig) -> None:
    """The rules that need no weights. Raises UnsupportedArchitecture as `check` does, before anything is loaded."""
    text = config.get_text_config()
    name = repr(config.model_type)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedArchitecture(
            f"Model type {name} is an encoder with a decoder, not a decoder-only language model. {supported()}"
        )
    if text is not config:
        parts = sorted(key for key in config.sub_configs if config.sub_configs[key] is not type(text))
        raise UnsupportedArchitecture(
            f"Model type {name} has parts beside its language model ({', '.join(parts) or 'of its own'}), which this "
            f"engine does not run. Save its language model alone (type {text.model_type!r}) and serve that."
        )
    strange = sorted(set(getattr(text, "layer_types", None) or ()) - ATTENDING)
    if strange:
        raise UnsupportedArchitecture(
            f"Model type {name} has layers of kind {', '.join(strange)}, which have no paged KV. {supported()}"
        )


def _recurrent_state(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    if getattr(module, "_is_stateful", False):
        return "some of its layers keep a recurrent state, and only keys and values are cached here"
    return None


def _attention_in_each_layer(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    layers = config.num_hidden_layers
    if not calls:
        return "its attention does not go through transformers' attention interface (it may add a position bias)"
    if [call.layer for call in calls] != list(range(layers)):
        return (
            f"{len({call.layer for call in calls})} of its {layers} layers attend; each must attend once and in order"
        )
    return None


def _number_of_attentions(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    if not calls:
        return "its attention does not go through transformers' attention interface (it may add a position bias)"
    if len(calls) != config.num_hidden_layers:
        return f"it has {config.num_hidden_layers} layers and attends {len(calls)} times"
    return None


def _causality(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    if not all(call.causal for call in calls):
        return "its attention is bidirectional, so it cannot generate"
    return None


def _unsupported_arguments(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    extras = sorted(set().union(*(call.extras for call in calls)))
    if extras:
        return f"its attention is given {', '.join(extras)}, which this engine's attention does not compute"
    return None


def _kv_sizes(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    shapes = {(call.kv_heads, call.key_dim, call.value_dim) for call in calls}
    if len(shapes) > 1 or any(key != value for _, key, value in shapes):
        listed = ", ".join(f"{heads} heads of {key} and {value}" for heads, key, value in sorted(shapes))
        return f"its keys and values differ in size or from layer to layer ({listed}), and the cache is uniform"
    return None


def _window_mismatch(
    module: torch.nn.Module, config: transformers.PretrainedConfig, calls: Sequence[AttentionCall]
) -> str | None:
    kinds = getattr(config, "layer_types", None) or ()
    mismatched = [
        call.layer for call, kind in zip(calls, kinds, strict=False) if _slides(kind) != bool(call.rule.window)
    ]
    if mismatched:
        return f"in layers {mismatched} the attention call's window is not what the layer's kind says"
    return None


def _slides(kind: str) -> bool:
    return kind == "sliding_attention"


_GENERATION_RULES = (
    _recurrent_state,
    _attention_in_each_layer,
    _causality,
    _unsupported_arguments,
    _kv_sizes,
    _window_mismatch,
)
_POOLING_RULES = (_recurrent_state, _number_of_attentions, _unsupported_arguments, _window_mismatch)
