"""The bars that compare two results of one run, which need a GPU."""

from collections.abc import Sequence
from typing import Final

from bench.report import Result

MULTIPLIED_FASTER: Final = 1.5  # w4a16 against torch's bfloat16 product, of at most 32 rows


def misses(results: Sequence[Result]) -> list[str]:
    """A sentence for every bar that is missed. Raises ValueError if a shape lacks its peer."""
    peers = {one.shape: one.seconds for one in results if one.what == "torch's product, bf16"}
    found = []
    for one in results:
        if one.what != "w4a16":
            continue
        if one.shape not in peers:
            raise ValueError(f"results: expected torch's product of {one.shape}, got none")
        ratio = peers[one.shape] / one.seconds
        if ratio < MULTIPLIED_FASTER:
            found.append(f"w4a16, {one.shape}: {ratio:.2f} × torch's bfloat16 product, at least {MULTIPLIED_FASTER}")
    return found
