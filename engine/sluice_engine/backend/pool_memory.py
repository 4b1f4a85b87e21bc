"""Memory available for the KV pool, and how an error describes it."""

from dataclasses import dataclass

from sluice_engine.backend.resources import binary_size, memory_left, memory_total
from sluice_engine.errors import InsufficientMemory


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Free bytes for the pool, and the texts of the error for too few."""

    free: int
    owner: str
    remedy: str
    most: int  # bytes; a larger pool certainly fails, whatever memory a host reclaims
    name: str = "The free memory"  # begins a sentence


def host_memory(swap_size: int) -> PoolMemory:
    """The memory that this container has left, without `swap_size` bytes for swapped blocks."""
    free = max(0, memory_left() - swap_size)
    remedy = "more memory (on a cluster, the container's memory limit)"
    return PoolMemory(free, "in this container", remedy, most=memory_total())


def check_size(asked: int | None, memory: PoolMemory) -> None:
    """Raises InsufficientMemory if a pool of the size that was asked for certainly fails."""
    if asked is not None and asked > memory.most:
        raise InsufficientMemory(
            f"--kv-size asks for {binary_size(asked)}, and {binary_size(memory.free)} are available {memory.owner}. Give a "
            f"smaller --kv-size, or leave it out: the pool then takes a share of what is free."
        )
