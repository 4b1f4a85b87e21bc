"""Memory available for the KV pool: the accelerator's free memory after loading the weights, or the cgroup's."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sluice_engine.backend.resources import binary_size, memory_left, memory_total
from sluice_engine.errors import InsufficientMemory

DeviceMemory = Callable[[], tuple[int, int]]  # free and total bytes of the accelerator


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Free bytes for the pool, and the texts of the error for too few."""

    free: int
    owner: str
    remedy: str
    most: int  # bytes; a larger pool certainly fails, whatever memory a host reclaims
    name: str = "The free memory"  # begins a sentence


def cuda_memory() -> tuple[int, int]:
    """Free and total bytes of the current CUDA device; blocks that torch caches count as free."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return int(free), int(total)


def host_memory(swap_size: int) -> PoolMemory:
    """The memory that this container has left, without `swap_size` bytes for swapped blocks."""
    free = max(0, memory_left() - swap_size)
    remedy = "more memory (on a cluster, the container's memory limit)"
    return PoolMemory(free, "in this container", remedy, most=memory_total())


def accelerator_memory(read: DeviceMemory) -> PoolMemory:
    """The accelerator's free memory, after the weights are loaded."""
    free, total = read()
    owner = (
        f"on the GPU, which has {binary_size(total)} and {binary_size(free)} of them free once the weights are loaded"
    )
    remedy = "a GPU with more free memory (or a larger --kv-memory-fraction)"
    return PoolMemory(free, owner, remedy, most=free, name="The free memory of the GPU")


def check_size(asked: int | None, memory: PoolMemory) -> None:
    """Raises InsufficientMemory if a pool of the size that was asked for certainly fails."""
    if asked is not None and asked > memory.most:
        raise InsufficientMemory(
            f"--kv-size asks for {binary_size(asked)}, and {binary_size(memory.free)} are available {memory.owner}. Give a "
            f"smaller --kv-size, or leave it out: the pool then takes a share of what is free."
        )
