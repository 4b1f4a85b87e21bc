"""Configurations of the KV write by the query heads of a key-value head. It is bound by memory on all architectures."""

from dataclasses import dataclass
from typing import Final

MOST_HEAD_DIM: Final = 256


@dataclass(frozen=True)
class Config:
    """A program computes `tokens` tokens of one key-value head and of its query heads."""

    tokens: int
    warps: int


# Largest padded group → configuration. A tile has at most 32 query rows, so that nothing spills at a head_dim of 256.
TABLE: Final = (
    (1, Config(tokens=8, warps=4)),
    (4, Config(tokens=4, warps=4)),
    (8, Config(tokens=2, warps=4)),
    (32, Config(tokens=1, warps=4)),
)


def config_of(group: int) -> Config | None:
    """The configuration for this many query heads per key-value head; None: unsupported."""
    return next((config for most, config in TABLE if group <= most), None)
