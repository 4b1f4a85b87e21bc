"""Correctness cases of `w4a16`: those of all grouped weights, with 4 bits."""

from typing import Final

from bench.cases.grouped import Case, compare, large, named

__all__ = ["LARGE", "NAMED", "compare"]
NAMED: Final[dict[str, Case]] = named(bits=4)
LARGE: Final[dict[str, Case]] = large(bits=4)
