"""Configurations of the weight-only int8 product by architecture and padded rows."""

from typing import Final

from sluice_kernels.grouped_product import Config

# (least architecture, most padded rows, configuration): the first that fits applies.
TABLE: Final = (
    (90, 16, Config(columns=128, warps=8, stages=3)),
    (0, 64, Config(columns=64, warps=4, stages=4)),
)


def config_of(architecture: int, rows: int) -> Config:
    """The configuration for a number of rows padded to `rows`."""
    return next(config for least, most, config in TABLE if architecture >= least and rows <= most)
