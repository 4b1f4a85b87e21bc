"""The plan of tensor parallelism: which part of each weight a rank holds. Pure.

As in Shoeybi et al., "Megatron-LM" (arXiv:1909.08053), section 3: a layer's first products are split by their outputs and
its second ones by their inputs, so that each pair needs one sum over the ranks. The embedding and the head are split by
the vocabulary. Norms are whole on every rank.

The names are those by which `model/decoder_parts.py` recognises a model's parts.
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
    INNER = "the feed-forward layer's inner values, along the outputs"
    ACTIVATED = "the feed-forward layer's inner values, along the inputs"
    VOCABULARY = "the vocabulary, along the outputs"

    @property
    def summed(self) -> bool:
        """True if the product's outputs are parts of a sum over the ranks."""
        return self in (Split.ATTENDED_HEADS, Split.ACTIVATED)


SPLITS: Final = {
    "q_proj": Split.QUERY_HEADS,
    "k_proj": Split.KV_HEADS,
    "v_proj": Split.KV_HEADS,
    "o_proj": Split.ATTENDED_HEADS,
    "gate_proj": Split.INNER,
    "up_proj": Split.INNER,
    "down_proj": Split.ACTIVATED,
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
    return SPLITS.get(_module(parameter))


def cut_of(parameter: str, shape: tuple[int, ...], share: Share) -> Cut | None:
    """The part of a tensor of this name and shape that the rank holds; None: all of it."""
    split = split_of(parameter)
    if split is None:
        return None
    if split is Split.VOCABULARY:
        ids = share.vocabulary(shape[0])
        return Cut(0, ids.start, ids.stop)
    if split.summed and len(shape) == 1:
        # The first rank adds the bias of a sum; those of the others are zeros.
        return Cut(0, 0, shape[0]) if share.rank == 0 else Cut(0, shape[0], 2 * shape[0])
    dim = 1 if split.summed else 0
    units, first, last = _units(split, share)
    each = shape[dim] // units
    return Cut(dim, first * each, last * each)


def unplanned(modules: Iterable[str]) -> list[str]:
    """The modules with weights of two dimensions that the plan does not have, by their last name."""
    return sorted({name.rpartition(".")[2] for name in modules} - SPLITS.keys())


def _units(split: Split, share: Share) -> tuple[int, int, int]:
    """How many units the dimension has, and the first and the end of the rank's."""
    sizes, rank, ranks = share.sizes, share.rank, share.ranks
    units = {Split.KV_HEADS: sizes.kv_heads, Split.INNER: sizes.inner, Split.ACTIVATED: sizes.inner}.get(
        split, sizes.heads
    )
    if units < ranks:  # key-value heads: several ranks hold a copy of the one that their query heads read
        own = rank * units // ranks
        return units, own, own + 1
    return units, rank * units // ranks, (rank + 1) * units // ranks


def _module(parameter: str) -> str:
    owner = parameter.rpartition(".")[0]
    return owner.rpartition(".")[2]
