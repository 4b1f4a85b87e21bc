"""Which layers are cached together: groups of equally many that attend alike, so that all blocks are of one size.

A layer that slides needs no key or value that has left its window, a layer that attends to all needs every one. Were
both kept in the same blocks, the second would hold on to what the first could give back. So blocks hold one kind, and
are of one size, because all are taken from one pool (`blocks.py`). The idea is vLLM's hybrid KV cache. Two pools, each
with blocks as large as its layers need, would be simpler, but have to be split when the engine starts: short texts
need as many blocks of the one kind as of the other, long ones nearly none that slide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_IDLE = 0.1  # of a stretch's blocks: smaller groups leave less of them idle, but take more blocks to count


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """`depth` layers to a group; the last group of either kind may have fewer, and leaves that part of a block idle."""

    depth: int
    windows: tuple[int | None, ...]  # by group: tokens that its layers see, None: all; those that see all come first
    places: tuple[tuple[int, int], ...]  # of each layer: its group, and where in it


def group_layers(windows: Sequence[int | None]) -> LayerGroups:
    """The groups of layers that see so many tokens each (None: all). Those that slide are taken for alike: what the
    widest of them sees is kept for all."""
    lasting = [layer for layer, window in enumerate(windows) if window is None]
    sliding = [layer for layer, window in enumerate(windows) if window is not None]
    kinds = [kind for kind in (lasting, sliding) if kind]
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
    """The most layers to a group that leave little idle; with one each, nothing is. A model without layers has 0."""
    for depth in range(min(counts, default=0), 0, -1):
        taken = sum(-(-count // depth) * depth for count in counts)
        if taken - sum(counts) <= MOST_IDLE * taken:
            return depth
    return 0
