"""Configurations of the RMS norm kernel by padded width. One for all architectures: the kernel is bound by memory."""

from dataclasses import dataclass
from typing import Final

MOST_WIDTH: Final = 16384


@dataclass(frozen=True)
class Config:
    """`rows` per program, and its warps."""

    rows: int
    warps: int


# Largest padded width → configuration. A thread holds 16 to 32 values, so that nothing spills with a residual.
TABLE: Final = (
    (128, Config(rows=16, warps=4)),
    (512, Config(rows=4, warps=4)),
    (1024, Config(rows=2, warps=4)),
    (2048, Config(rows=1, warps=4)),
    (4096, Config(rows=1, warps=8)),
    (8192, Config(rows=1, warps=8)),
    (16384, Config(rows=1, warps=16)),
)


def config_of(block: int) -> Config:
    """The configuration for a width padded to the power of two `block`."""
    return next(config for most, config in TABLE if block <= most)
