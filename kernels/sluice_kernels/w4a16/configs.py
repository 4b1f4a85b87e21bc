"""Configurations of the weight-only int4 product by architecture and padded rows."""

from typing import Final

from sluice_kernels.grouped_product import Config

# (least architecture, most padded rows, configuration): the first that fits applies. The tile of outputs is one, so that
# the splits do not depend on the rows.
TABLE: Final = ((0, 64, Config(columns=64, warps=4, stages=4)),)


def config_of(architecture: int, rows: int) -> Config:
    """The configuration for a number of rows padded to `rows`."""
    return next(config for least, most, config in TABLE if architecture >= least and rows <= most)
