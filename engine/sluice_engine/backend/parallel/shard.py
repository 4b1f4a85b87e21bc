"""Shards a transformers module in place: each weight is one rank's part, and the layers' outputs are joined over the ranks.

The module then computes the same logits as the whole one, on every rank, so it is what the fused decoder is compared with.
"""

from collections.abc import Mapping
from typing import Any

import torch

from sluice.models.tensor_parallel import not_divided, sizes_of
from sluice_engine.backend.parallel.collectives import embedded, joined_logits, part_of
from sluice_engine.backend.parallel.group import Group
from sluice_engine.backend.parallel.plan import Share, Split, cut_of, split_of, unplanned
from sluice_engine.errors import InvalidOption, UnsupportedArchitecture


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


def check_planned(module: torch.nn.Module, ranks: int) -> None:
    """Raises UnsupportedArchitecture for a module with weights that the plan does not have."""
    owners = (name.rpartition(".")[0] for name, weight in module.named_parameters() if weight.dim() > 1)
    if missing := unplanned(owners):
        raise UnsupportedArchitecture(
            f"--tensor-parallel {ranks} cannot shard {type(module).__name__}: there is no plan for its "
            f"{', '.join(missing[:3])}. Serve this model with --tensor-parallel 1."
        )


def sharded_weight(share: Share, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The rank's part of the parameter of this name."""
    return part_of(tensor, cut_of(name, tuple(tensor.shape), share))


def connect(module: Any, group: Group) -> None:
    """Join the outputs of a module whose weights are the rank's parts. The head's `out_features` stays the whole
    vocabulary; the other layers' sizes become those of their parts.
    """
    head = module.get_output_embeddings()
    for name, child in module.named_modules():
        split = split_of(f"{name}.weight")
        if child is head:
            _join_head(child, group)
        elif split is Split.VOCABULARY:
            _join_embedding(child, len(child.weight), group)
        elif split is not None:
            child.out_features, child.in_features = child.weight.shape
            if split.summed:
                child.register_forward_hook(lambda _, __, output: group.sum(output))


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
