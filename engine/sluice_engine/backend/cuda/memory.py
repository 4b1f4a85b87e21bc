"""The memory of the KV pool: what a device has free beside the weights, the decode graphs and the largest step.

It is measured on a trial: a runner with the smallest pool, whose graphs are captured, computes one step of
`max_batched_tokens` tokens. The trial is freed before the pool is allocated.
"""

import gc
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from sluice_engine.backend.cuda.device_queue import Work
from sluice_engine.backend.parallel.group import RankFailed
from sluice_engine.backend.pool_memory import PoolMemory
from sluice_engine.backend.resources import binary_size, memory_left, memory_total
from sluice_engine.backend.runner import Runner
from sluice_engine.errors import InsufficientMemory, first_line
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Join, Plan, Row
from sluice_perfmodel.step_time import StepWork

REMEDY: Final = "a GPU with more free memory (or a larger --kv-memory-fraction)"
_SAMPLING: Final = SamplingParams(temperature=1.0, top_p=0.9, logprobs=1)  # the sampler's largest temporary tensors


class DeviceMemory(Protocol):
    """Measures a device's memory, in bytes."""

    def read(self) -> tuple[int, int]:
        """Free and total bytes; blocks that torch caches count as free."""

    def peak_of(self, work: Work) -> int:
        """Run `work`; the most that torch held meanwhile, less what it held before."""


class CudaMemory:
    """The memory of the current CUDA device."""

    def read(self) -> tuple[int, int]:
        """See `DeviceMemory`."""
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return int(free), int(total)

    def peak_of(self, work: Work) -> int:
        """See `DeviceMemory`. Whole blocks of torch's allocator count, because no other process can use their rest."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_reserved()) - before


class HostShare:
    """The memory of a host on which several ranks rehearse a step: each has an equal share."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def read(self) -> tuple[int, int]:
        """See `DeviceMemory`."""
        return memory_left() // self._ranks, memory_total() // self._ranks

    def peak_of(self, work: Work) -> int:
        """See `DeviceMemory`. The growth of the process's largest resident memory."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes of a device that holds the weights and a trial. `pool`: the trial's pool. `step`: what its largest step held
    at most.
    """

    free: int
    total: int
    pool: int
    step: int


def kv_budget(measured: Measured) -> int:
    """Bytes that are left for the KV pool while a step is computed: free + pool − step."""
    return max(0, measured.free + measured.pool - measured.step)


def device_memory(memory: DeviceMemory) -> PoolMemory:
    """The memory that is free now."""
    free, total = memory.read()
    owner = f"on the GPU, which has {binary_size(total)} and {binary_size(free)} of them free"
    return PoolMemory(free, owner, REMEDY, most=free, name="The free memory of the GPU")


def pool_memory(measured: Measured) -> PoolMemory:
    """The KV budget, with the numbers behind it for the error about a pool that is too small."""
    free = kv_budget(measured)
    owner = (
        f"on the GPU, which has {binary_size(measured.total)} and {binary_size(free)} of them free beside the weights, "
        f"the decode graphs and the {binary_size(measured.step)} of a step"
    )
    return PoolMemory(free, owner, REMEDY, most=free, name="The free memory of the GPU")


@dataclass(frozen=True, slots=True)
class Trial:
    """The sizes of the trial's runner, and the tokens of its step."""

    sizes: CacheConfig
    tokens: int

    def largest_step(self, model: LoadedModel) -> Plan:
        """A step of so many tokens in as many sequences as it can have. The last one ends at the last position of the
        model. All sequences share one block of each layer group, because their content does not matter.
        """
        length = model.max_model_length
        count = min(self.sizes.max_num_seqs, self.tokens)
        whole, rest = divmod(self.tokens, count)
        counts = [min(length, whole + (index < rest)) for index in range(count)]
        starts = [0] * (count - 1) + [length - counts[-1]]
        rows = tuple(
            self._row(slot, start, tokens) for slot, (start, tokens) in enumerate(zip(starts, counts, strict=True))
        )
        joins = tuple(Join(row.request_id, row.slot, _SAMPLING) for row in rows)
        return Plan(
            step=0,
            rows=rows,
            joins=joins,
            preempted=None,
            work=StepWork(),
            prompt_tokens=sum(counts),
            cached_prompt_tokens=0,
        )

    def _row(self, slot: int, start: int, tokens: int) -> Row:
        blocks = tuple(range(self.sizes.groups)) * -(-(start + tokens) // self.sizes.block_size)
        return Row(f"trial-{slot}", slot, start, (0,) * tokens, samples=True, first_block=0, new_blocks=blocks)


def measure(memory: DeviceMemory, build: Callable[[CacheConfig], Runner], model: LoadedModel, trial: Trial) -> Measured:
    """Build the trial's runner, compute its largest step and free both. Raises InsufficientMemory if that fails."""
    try:
        return _measured(memory, build(trial.sizes), trial.largest_step(model))
    except RankFailed:  # the rank whose step failed has the reason
        raise
    except (MemoryError, RuntimeError) as error:  # torch reports a failed allocation as RuntimeError
        raise InsufficientMemory(
            f"A step of {trial.tokens} tokens in {trial.sizes.max_num_seqs} sequences cannot be computed beside the "
            f"weights: {first_line(error)}. Give the engine a GPU with more free memory, or lower --max-batched-tokens "
            f"or --max-num-seqs."
        ) from error
    finally:
        gc.collect()


def _measured(memory: DeviceMemory, runner: Runner, plan: Plan) -> Measured:
    """The numbers of this runner and step. Raises RuntimeError for a step that runs out of memory."""

    def compute() -> None:
        for fault in runner.run(plan).errors.values():
            raise RuntimeError(fault)

    free, total = memory.read()
    step = memory.peak_of(compute)
    return Measured(free, total, sum(tensor.nbytes for tensor in runner.cache.tensors), step)
