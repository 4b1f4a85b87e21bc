"""Configurations of paged decode attention by head dimension and architecture."""

from dataclasses import dataclass
from typing import Final

TOKENS_PER_SPLIT: Final = 256  # a shorter split costs more to merge than it gains
MOST_SPLITS: Final = 32
PROGRAMS_PER_MULTIPROCESSOR: Final = 2  # they hide each other's load latency


@dataclass(frozen=True)
class Config:
    """A program goes through its share of the context by tiles of `tile` tokens."""

    tile: int
    warps: int
    stages: int


# (least architecture, largest padded head_dim, configuration): the first that fits applies. sm_80 has 163 KiB of shared
# memory per program, the others 227.
TABLE: Final = (
    (90, 128, Config(tile=64, warps=4, stages=3)),
    (90, 256, Config(tile=64, warps=8, stages=3)),
    (0, 128, Config(tile=64, warps=4, stages=3)),
    (0, 256, Config(tile=32, warps=4, stages=3)),
)


# The same for an fp8 cache. On an H100, 64 contexts of 4,096 tokens take 218 µs; with three or four stages 245, with four
# warps 288 at least.
FP8_TABLE: Final = ((90, 128, Config(tile=64, warps=2, stages=5)), *TABLE)


def config_of(architecture: int, dims: int, *, fp8: bool = False) -> Config:
    """The configuration for a head_dim padded to `dims`. `fp8`: of the cache."""
    table = FP8_TABLE if fp8 else TABLE
    return next(config for least, most, config in table if architecture >= least and dims <= most)


def splits_for(sequences: int, kv_heads: int, most_tokens: int, multiprocessors: int) -> int:
    """The number of splits (a power of two) that fills the device, from shapes alone."""
    wanted = -(-PROGRAMS_PER_MULTIPROCESSOR * multiprocessors // max(1, sequences * kv_heads))
    useful = -(-most_tokens // TOKENS_PER_SPLIT)
    return 1 << (max(1, min(wanted, useful, MOST_SPLITS)) - 1).bit_length()
