"""Shards a transformers module in place: each weight is one rank's part, and the layers' outputs are joined over the ranks.

The module then computes the same logits as the whole one, on every rank, so it is what the fused decoder is compared with.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sluice.models.tensor_parallel import not_divided, sizes_of
from sluice_engine.backend.parallel.collectives import embedded, joined_logits, part_of
from sluice_engine.backend.parallel.group import Group
from sluice_engine.backend.parallel.plan import EXPERTS, Share, Split, can_divide, cuts_of, split_of, unplanned
from sluice_engine.errors import InvalidOption, UnsupportedArchitecture
from sluice_engine.model.decoder_parts import mixture_of_experts


def share_of(config: Mapping[str, Any], rank: int, ranks: int) -> Share:
    """The share of a rank in the model of this config. Raises InvalidOption for a number that does not divide it."""
    sizes = sizes_of(config)
    if sizes is None:
        raise UnsupportedArchitecture(
            f"--tensor-parallel {ranks} needs num_attention_heads and intermediate_size in the model's config.json. "
            f"Serve this model with --tensor-parallel 1."
        )
    fault = not_divided(sizes, ranks)
    if fault is not None:
        raise InvalidOption(f"--tensor-parallel {ranks} does not fit the model. {fault}")
    return Share(rank, ranks, sizes)


def check_planned(module: torch.nn.Module, share: Share) -> None:
    """Raises UnsupportedArchitecture for a module with weights that the plan does not have, and InvalidOption for a number
    of ranks that does not divide one of them.
    """
    ranks, weights = share.ranks, dict(module.named_parameters())
    whole = _whole(module)
    missing = unplanned(name for name, weight in weights.items() if weight.dim() > 1 and name not in whole)
    missing += sorted(set(_wide_norms(module)))
    if missing:
        raise UnsupportedArchitecture(
            f"--tensor-parallel {ranks} cannot shard {type(module).__name__}: there is no plan for its "
            f"{', '.join(missing[:3])}. Serve this model with --tensor-parallel 1."
        )
    for name, weight in weights.items():
        if name not in whole and not can_divide(name, tuple(weight.shape), share):
            raise InvalidOption(
                f"--tensor-parallel {ranks} does not fit the model: its {name} {list(weight.shape)} cannot be divided by "
                f"{ranks}."
            )


def _whole(module: torch.nn.Module) -> set[str]:
    """The weights of routers and of shared experts' gates, by which all ranks choose the same experts."""
    found = set()
    for name, child in module.named_modules():
        if (parts := mixture_of_experts(child)) is None:
            continue
        found |= {f"{name}.gate.weight"} | ({f"{name}.shared_expert_gate.weight"} if parts.shared else set())
    return found


def _wide_norms(module: torch.nn.Module) -> Iterator[str]:
    """Norms of all heads together: the heads of one rank do not suffice for their mean."""
    for child in module.modules():
        projections = {"q_norm": "q_proj", "k_norm": "k_proj"}
        for name, projection in projections.items():
            norm, linear = getattr(child, name, None), getattr(child, projection, None)
            weight = getattr(norm, "weight", None)
            if weight is not None and linear is not None and weight.shape[-1] != getattr(child, "head_dim", None):
                yield name


def sharded_weight(share: Share, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The rank's part of the parameter of this name."""
    return part_of(tensor, cuts_of(name, tuple(tensor.shape), share))


def connect(module: Any, share: Share, group: Group) -> None:
    """Join the outputs of a module whose weights are the rank's parts. The head's `out_features` stays the whole
    vocabulary; the other layers' sizes become those of their parts.
    """
    head = module.get_output_embeddings()
    for name, child in list(module.named_modules()):
        if name.rpartition(".")[2] == EXPERTS and split_of(f"{name}.down_proj") is not None:
            child.register_forward_hook(lambda _, __, output: group.sum(output))
            continue
        split = split_of(f"{name}.weight")
        if child is head:
            _join_head(child, group)
        elif split is Split.VOCABULARY:
            _join_embedding(child, len(child.weight), group)
        elif split is not None:
            child.out_features, child.in_features = child.weight.shape
            if split is Split.QUERY_KEY_VALUE:
                _divide_heads(module.get_submodule(name.rpartition(".")[0]), share)
            if split.summed:
                child.register_forward_hook(lambda _, __, output: group.sum(output))


def _divide_heads(attention: Any, share: Share) -> None:
    """An attention that splits a merged product reads the numbers of heads from its config and from itself."""
    attention.config = copy.copy(attention.config)
    attention.config.num_attention_heads = share.heads
    attention.config.num_key_value_heads = attention.num_key_value_heads = share.kv_heads


def _join_embedding(child: torch.nn.Module, part: int, group: Group) -> None:
    lookup = child.forward  # of the class, which may scale the rows

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        return embedded(tokens, part, lookup, group)

    child.forward = forward


def _join_head(head: torch.nn.Linear, group: Group) -> None:
    def join(_: torch.nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
        rows = joined_logits(output.flatten(0, -2), head.out_features, group)
        return rows.view(*output.shape[:-1], head.out_features)

    head.register_forward_hook(join)
