"""Assigns layers to groups that share blocks: groups of equal size and equal attention span, so that all blocks have
the same size.

A sliding-window layer needs no KV outside its window, a full-attention layer needs all KV. In shared blocks the latter
would keep the former's KV alive, so each block holds one kind. All blocks have the same size because they come from one
pool (`kvcache/`). The idea is vLLM's hybrid KV cache. Two pools with different block sizes would be simpler, but their
split is fixed at startup, while the demand varies: short texts need equal numbers of both kinds, long texts nearly no
sliding-window blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_IDLE_SHARE = 0.1  # of the layers' block memory; smaller groups leave less idle, but need more blocks to manage


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """`depth` layers per group. The last group of each kind may have fewer, and leaves that part of its blocks idle."""

    depth: int
    windows: tuple[int | None, ...]  # by group: window in tokens, None: full attention; those come first
    places: tuple[tuple[int, int], ...]  # of each layer: its group, and its index in the group


def group_layers(windows: Sequence[int | None]) -> LayerGroups:
    """The groups of layers with these windows (None: full attention). All sliding-window layers are treated as equal,
    with the widest window.
    """
    full = [layer for layer, window in enumerate(windows) if window is None]
    sliding = [layer for layer, window in enumerate(windows) if window is not None]
    kinds = [kind for kind in (full, sliding) if kind]
    depth = _depth([len(kind) for kind in kinds])
    places: dict[int, tuple[int, int]] = {}
    groups: list[int | None] = []
    for kind in kinds:
        for at, layer in enumerate(kind):
            places[layer] = len(groups) + at // depth, at % depth
        window = max((seen for seen in map(windows.__getitem__, kind) if seen is not None), default=None)
        groups += [window] * -(-len(kind) // depth)
    return LayerGroups(depth, tuple(groups) or (None,), tuple(places[layer] for layer in range(len(windows))))


def _depth(counts: Sequence[int]) -> int:
    """The largest group size that leaves at most MAX_IDLE_SHARE of the block memory idle; size 1 leaves none. 0 for a
    model without layers.
    """
    for depth in range(min(counts, default=0), 0, -1):
        taken = sum(-(-count // depth) * depth for count in counts)
        if taken - sum(counts) <= MAX_IDLE_SHARE * taken:
            return depth
    return 0
