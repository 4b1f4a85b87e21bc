"""Correctness cases of `w8a16`: those of all grouped weights, with 8 bits."""

from typing import Final

from bench.cases.grouped import Case, compare, large, named

__all__ = ["LARGE", "NAMED", "compare"]
NAMED: Final[dict[str, Case]] = named(bits=8)
LARGE: Final[dict[str, Case]] = large(bits=8)
