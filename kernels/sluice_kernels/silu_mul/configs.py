"""Configurations of the gated activation by padded width. One for all architectures: it is bound by memory."""

from dataclasses import dataclass
from typing import Final

MOST_WIDTH: Final = 65536


@dataclass(frozen=True)
class Config:
    """A program computes a tile of `rows` × `columns`."""

    rows: int
    columns: int
    warps: int


# Largest padded width → configuration. Tiles of 2,048 elements: one 16-byte load per thread and input.
TABLE: Final = (
    (128, Config(rows=16, columns=128, warps=4)),
    (512, Config(rows=4, columns=512, warps=4)),
    (1024, Config(rows=2, columns=1024, warps=4)),
    (MOST_WIDTH, Config(rows=1, columns=2048, warps=4)),
)
QUANTISED: Final = Config(rows=1, columns=4096, warps=8)  # a program computes its whole row, tile by tile


def config_of(block: int) -> Config:
    """The configuration for a width padded to the power of two `block`."""
    return next(config for most, config in TABLE if block <= most)
