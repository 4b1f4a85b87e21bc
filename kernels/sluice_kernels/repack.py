"""Weights of a quantised checkpoint, unpacked to integers → the layout of the products. Runs once, at load.

A checkpoint with activation order (`desc_act`) assigns input rows to groups in any order. Its rows are sorted by group here
and the product reads x in that order.
"""

import torch

from sluice_kernels.grouped_weights import GROUP, GroupedWeights, pack


def repack(
    values: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, bits: int, group_of: torch.Tensor | None = None
) -> GroupedWeights:
    """values [inner, outputs] from 0 to 2^bits - 1, scales and zeros [groups, outputs] → what `w4a16` and `w8a16` take.

    group_of [inner]: the group of each row; None: equal groups of consecutive rows. A group of a multiple of 128 rows is
    stored as several. Raises ValueError for an inner size or a group that is no multiple of 128.
    """
    inner, groups = values.shape[0], scales.shape[0]
    if inner % GROUP:
        raise ValueError(f"values: expected an inner size that is a multiple of {GROUP}, got {inner}")
    if group_of is None:
        if inner % groups:
            raise ValueError(f"scales: expected a number of groups that divides the {inner} rows, got {groups}")
        group_of = torch.arange(groups, device=values.device).repeat_interleave(inner // groups)
    group_of = group_of.long()
    order = torch.argsort(group_of, stable=True)
    sizes = torch.bincount(group_of, minlength=groups)
    if bool((sizes % GROUP != 0).any()):
        odd = int(sizes[sizes % GROUP != 0][0])
        raise ValueError(f"group_of: expected groups of a multiple of {GROUP} rows, got one of {odd}")
    stored = group_of[order][::GROUP]
    in_order = bool((order == torch.arange(inner, device=order.device)).all())
    return GroupedWeights(
        words=pack(values if in_order else values[order], bits),
        scales=scales[stored].contiguous(),
        zeros=zeros[stored].to(torch.int16).contiguous(),
        order=None if in_order else order,
    )
