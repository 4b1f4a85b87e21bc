"""A counter-based generator: one uniform number from a hash of (request seed, position).

It keeps no state, so neither batching, chunking nor preemption changes a request's samples.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def uniform(seeds: ArrayLike, positions: ArrayLike) -> NDArray[np.float64]:
    """One number in [0, 1) per (seed, position): two rounds of the SplitMix64 finaliser (Steele et al., 2014).

    `seeds` are integers, taken modulo 2^64; `positions` are non-negative.
    """
    with np.errstate(over="ignore"):
        mixed = _mix(as_seeds(seeds))
        mixed = _mix(mixed + np.asarray(positions, dtype=np.uint64) * _GAMMA)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def as_seeds(seeds: ArrayLike) -> NDArray[np.uint64]:
    """Integers of any size and sign, modulo 2^64."""
    if isinstance(seeds, np.ndarray) and seeds.dtype == np.uint64:
        return seeds
    return np.array([int(seed) & 0xFFFFFFFFFFFFFFFF for seed in np.asarray(seeds, dtype=object)], dtype=np.uint64)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + _GAMMA
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
