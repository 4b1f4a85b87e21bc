"""Configurations of the expert products by architecture, element size and mean rows per expert."""

from dataclasses import dataclass
from typing import Final

import torch

MOST_EXPERTS: Final = 512
MOST_TOP_K: Final = 16
# Mean rows per expert from which torch's grouped product computes a step. An estimate: not measured.
GROUPED_ROWS: Final = 128
GROUPED_ARCHITECTURES: Final = range(90, 110)  # on others torch reads the offsets back to the host
GROUPED_MULTIPLE: Final = 8  # of both widths: rows of 16 bytes


@dataclass(frozen=True)
class Config:
    """A program computes a tile of `tile` places × `columns` outputs, `depth` inputs at a time."""

    tile: int
    columns: int
    depth: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Configs:
    """Of the product of gate and up, which has two sums, and of the product down."""

    gate_up: Config
    down: Config

    @property
    def tile(self) -> int:
        """The places of a tile, which both products share."""
        return self.gate_up.tile


FEW: Final = Configs(Config(16, 64, 64, warps=4, stages=4), Config(16, 64, 128, warps=4, stages=4))
SOME: Final = Configs(Config(64, 64, 64, warps=4, stages=3), Config(64, 128, 64, warps=4, stages=3))
MANY: Final = Configs(Config(128, 128, 64, warps=8, stages=3), Config(128, 128, 64, warps=8, stages=3))
MANY_AMPERE: Final = Configs(Config(128, 64, 64, warps=8, stages=3), Config(128, 128, 64, warps=8, stages=3))
# float32 serves correctness: it has no tensor cores, so a large tile gains nothing.
EXACT: Final = Configs(Config(16, 64, 32, warps=4, stages=3), Config(16, 64, 32, warps=4, stages=3))

# (least architecture, most mean rows per expert, configurations): the first that fits applies.
ANY_MEAN: Final = 1 << 30
TABLE: Final = ((0, 8, FEW), (0, 64, SOME), (90, ANY_MEAN, MANY), (0, ANY_MEAN, MANY_AMPERE))


def config_of(architecture: int, dtype: torch.dtype, rows_per_expert: float) -> Configs:
    """The configurations for experts that get `rows_per_expert` rows in the mean."""
    if dtype == torch.float32:
        return EXACT
    return next(found for least, most, found in TABLE if architecture >= least and rows_per_expert <= most)


def all_configs(architecture: int, dtype: torch.dtype) -> tuple[Configs, ...]:
    """Every one that a step may get."""
    if dtype == torch.float32:
        return (EXACT,)
    return tuple({most: found for least, most, found in reversed(TABLE) if architecture >= least}.values())
