"""The plan of tensor parallelism: which part of each weight a rank holds. Pure.

As in Shoeybi et al., "Megatron-LM" (arXiv:1909.08053), section 3: a layer's first products are split by their outputs and
its second ones by their inputs, so that each pair needs one sum over the ranks. Of a mixture of experts every rank has a
part of each expert, so that all ranks have the same work. The embedding and the head are split by the vocabulary. Norms and
routers are whole on every rank.

The names are transformers'. Products that it merges are split part by part.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sluice.models.tensor_parallel import ShardedSizes


class Split(Enum):
    """What a weight is split by, and along which dimension."""

    QUERY_HEADS = "query heads, along the outputs"
    KV_HEADS = "key-value heads, along the outputs"
    ATTENDED_HEADS = "query heads, along the inputs"
    QUERY_KEY_VALUE = "query heads, then key heads, then value heads, along the outputs"
    INNER = "the feed-forward layer's inner values, along the outputs"
    GATE_UP = "the gate's inner values, then those of up, along the outputs"
    ACTIVATED = "the feed-forward layer's inner values, along the inputs"
    EXPERTS_GATE_UP = "of each expert the gate's inner values, then those of up, along the outputs"
    EXPERTS_ACTIVATED = "of each expert the inner values, along the inputs"
    VOCABULARY = "the vocabulary, along the outputs"

    @property
    def summed(self) -> bool:
        """True if the product's outputs are parts of a sum over the ranks."""
        return self in (Split.ATTENDED_HEADS, Split.ACTIVATED, Split.EXPERTS_ACTIVATED)


EXPERTS: Final = "experts"  # the module that holds the weights of all experts of a layer
SPLITS: Final = {
    "q_proj": Split.QUERY_HEADS,
    "k_proj": Split.KV_HEADS,
    "v_proj": Split.KV_HEADS,
    "qkv_proj": Split.QUERY_KEY_VALUE,
    "o_proj": Split.ATTENDED_HEADS,
    "gate_proj": Split.INNER,
    "up_proj": Split.INNER,
    "gate_up_proj": Split.GATE_UP,
    "down_proj": Split.ACTIVATED,
    f"{EXPERTS}.gate_up_proj": Split.EXPERTS_GATE_UP,
    f"{EXPERTS}.down_proj": Split.EXPERTS_ACTIVATED,
    "embed_tokens": Split.VOCABULARY,
    "lm_head": Split.VOCABULARY,
}


@dataclass(frozen=True, slots=True)
class Share:
    """One rank of `ranks`, and the sizes of the model that they share."""

    rank: int
    ranks: int
    sizes: ShardedSizes

    @property
    def heads(self) -> int:
        """Query heads of each rank."""
        return self.sizes.heads // self.ranks

    @property
    def kv_heads(self) -> int:
        """Key-value heads of each rank."""
        return max(1, self.sizes.kv_heads // self.ranks)

    def vocabulary(self, size: int) -> range:
        """The token ids of this rank. The parts of all ranks are equal, so the last ones may end beyond the vocabulary."""
        part = -(-size // self.ranks)
        return range(self.rank * part, (self.rank + 1) * part)


@dataclass(frozen=True, slots=True)
class Cut:
    """The entries from `start` to `stop` of a tensor's dimension `dim`; those past its end are zeros."""

    dim: int
    start: int
    stop: int


def split_of(parameter: str) -> Split | None:
    """How the weight or bias of this name ("model.layers.0.mlp.up_proj.weight") is split; None: it is whole."""
    return SPLITS.get(kind_of(parameter))


def kind_of(parameter: str) -> str:
    """The name that the plan has for this parameter: its module's last name, or "experts.down_proj" and the like."""
    module, _, leaf = parameter.rpartition(".")
    name = module.rpartition(".")[2]
    return f"{name}.{leaf}" if name == EXPERTS else name


def cuts_of(parameter: str, shape: tuple[int, ...], share: Share) -> tuple[Cut, ...]:
    """The parts, one after the other, of a tensor of this name and shape that the rank holds; empty: all of it."""
    split = split_of(parameter)
    if split is None:
        return ()
    if split is Split.VOCABULARY:
        ids = share.vocabulary(shape[0])
        return (Cut(0, ids.start, ids.stop),)
    if split.summed and len(shape) == 1:
        # The first rank adds the bias of a sum; those of the others are zeros.
        return (Cut(0, 0, shape[0]) if share.rank == 0 else Cut(0, shape[0], 2 * shape[0]),)
    dim, parts = _layout(split, share)
    each = shape[dim] // sum(parts)
    cuts, before = [], 0
    for units in parts:
        first, last = _units(units, share)
        cuts.append(Cut(dim, (before + first) * each, (before + last) * each))
        before += units
    return tuple(cuts)


def can_divide(parameter: str, shape: tuple[int, ...], share: Share) -> bool:
    """False for a tensor of which the ranks cannot hold equal parts."""
    split = split_of(parameter)
    if split in (None, Split.VOCABULARY) or (split.summed and len(shape) == 1):
        return True
    dim, parts = _layout(split, share)
    return dim < len(shape) and shape[dim] % sum(parts) == 0


def unplanned(parameters: Iterable[str]) -> list[str]:
    """The kinds of these weights of more than one dimension that the plan does not have."""
    return sorted({kind_of(name) for name in parameters} - SPLITS.keys())


def _layout(split: Split, share: Share) -> tuple[int, tuple[int, ...]]:
    """The dimension that is split, and the units of each part along it. Inner values have as many units as ranks."""
    sizes, ranks = share.sizes, share.ranks
    return {
        Split.QUERY_HEADS: (0, (sizes.heads,)),
        Split.KV_HEADS: (0, (sizes.kv_heads,)),
        Split.QUERY_KEY_VALUE: (0, (sizes.heads, sizes.kv_heads, sizes.kv_heads)),
        Split.ATTENDED_HEADS: (1, (sizes.heads,)),
        Split.INNER: (0, (ranks,)),
        Split.GATE_UP: (0, (ranks, ranks)),
        Split.ACTIVATED: (1, (ranks,)),
        Split.EXPERTS_GATE_UP: (1, (ranks, ranks)),
        Split.EXPERTS_ACTIVATED: (2, (ranks,)),
    }[split]


def _units(units: int, share: Share) -> tuple[int, int]:
    """The first unit of the rank, and the end of its units."""
    rank, ranks = share.rank, share.ranks
    if units < ranks:  # key-value heads: several ranks hold a copy of the one that their query heads read
        own = rank * units // ranks
        return own, own + 1
    return rank * units // ranks, (rank + 1) * units // ranks
