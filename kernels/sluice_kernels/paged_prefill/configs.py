"""Configurations of paged prefill attention by head dimension, architecture and rows per sequence."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Config:
    """A tile has `rows` query rows (tokens × heads of a group) and goes through the context by `tile` tokens."""

    rows: int
    tile: int
    warps: int
    stages: int


# (least architecture, largest padded head_dim, configuration): the first that fits applies. On sm_90, wgmma needs 64
# rows per four warps; eight warps keep sums of 128 × 128 in registers, but not 256 × 128. On sm_100 a third stage spills.
LONG: Final = (
    (100, 64, Config(rows=128, tile=64, warps=8, stages=2)),
    (90, 64, Config(rows=128, tile=64, warps=8, stages=3)),
    (90, 128, Config(rows=128, tile=128, warps=8, stages=3)),
    (90, 256, Config(rows=128, tile=32, warps=8, stages=2)),
    (0, 64, Config(rows=64, tile=64, warps=4, stages=3)),
    (0, 128, Config(rows=64, tile=32, warps=4, stages=3)),
    (0, 256, Config(rows=64, tile=32, warps=8, stages=2)),
)
# Few rows per sequence (drafted tokens, a mixed batch that is mostly decode): a long tile would be empty for the most. On
# sm_90 the least tile of wgmma, but for 256 dimensions, where it needs eight warps and one program is resident, not three.
SHORT: Final = (
    (100, 128, Config(rows=32, tile=64, warps=4, stages=2)),
    (90, 128, Config(rows=64, tile=32, warps=4, stages=3)),
    (90, 256, Config(rows=32, tile=32, warps=4, stages=2)),
    (0, 128, Config(rows=32, tile=64, warps=4, stages=3)),
    (0, 256, Config(rows=32, tile=32, warps=4, stages=2)),
)
SHORT_ROWS: Final = 32  # rows per sequence on average, up to which SHORT applies


def config_of(architecture: int, dims: int, rows_per_sequence: float) -> Config:
    """The configuration for a head_dim padded to `dims`."""
    table = SHORT if rows_per_sequence <= SHORT_ROWS else LONG
    return next(config for least, most, config in table if architecture >= least and dims <= most)
