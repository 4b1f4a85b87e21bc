"""Whether a server at rest is as large as it was: samples between rounds of churn, and the verdict on them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

MEBIBYTE: Final = 2**20
MEMORY_SHARE: Final = 0.02  # of growth from the middle third to the last one; caches have filled by then
MEMORY_LEAST: Final = 4 * MEBIBYTE  # what allocators move about without a leak
MEMORY: Final = "bytes"  # the end of the names of memory; other names are counts

Sample = Mapping[str, int]


def faults(samples: Sequence[Sample]) -> list[str]:
    """Returns one sentence per measure that grew, by name. Counts must not grow at all, memory only within a tolerance.

    The first third is the time in which caches fill. Raises ValueError for fewer than six samples.
    """
    if len(samples) < 6:
        raise ValueError(f"six samples are needed for a verdict, not {len(samples)}")
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[-third:]
    found = []
    for name in samples[0]:
        before, after = [each[name] for each in middle], [each[name] for each in last]
        if name.endswith(MEMORY):
            grown = statistics.median(after) - statistics.median(before)
            if grown > max(MEMORY_LEAST, MEMORY_SHARE * statistics.median(before)):
                found.append(f"{name} grew by {grown / MEBIBYTE:.1f} MiB in a third of the time")
        elif min(after) > max(before):
            found.append(f"{name} grew from {max(before)} to {min(after)}")
    return found


def summary(samples: Sequence[Sample]) -> str:
    """Returns the medians of the middle and the last third, by name."""
    third = len(samples) // 3
    parts = []
    for name in samples[0]:
        before, after = (
            statistics.median(each[name] for each in part) for part in (samples[third : 2 * third], samples[-third:])
        )
        if name.endswith(MEMORY):
            parts.append(f"{name} {before / MEBIBYTE:.1f} → {after / MEBIBYTE:.1f} MiB")
        else:
            parts.append(f"{name} {before:g} → {after:g}")
    return ", ".join(parts)
