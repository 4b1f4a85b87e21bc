"""A CUDA device as a backend. On any other device its kernels are their references: the tests run it on a CPU."""

import torch

from sluice_engine.backend.base import ReadModule
from sluice_engine.backend.cuda.attention import kernel_decode
from sluice_engine.backend.pool_memory import DeviceMemory, PoolMemory, accelerator_memory, cuda_memory
from sluice_engine.backend.runner import Runner
from sluice_engine.model.attention import PagedAttention, set_attention
from sluice_engine.model.fusion import fuse
from sluice_engine.model.introspection import Structure
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.scheduler import SchedulerConfig


class CudaBackend:
    """See `base.Backend`. `read_memory` returns the device's free and total bytes."""

    def __init__(self, device: torch.device, read_memory: DeviceMemory = cuda_memory) -> None:
        self.device = device
        self._read_memory = read_memory

    def native_dtype(self, checkpoint: torch.dtype) -> torch.dtype:
        """The checkpoint's dtype."""
        return checkpoint

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        """The module with paged attention and fused layers."""
        module, structure = read()
        set_attention((call.module for call in structure.calls), PagedAttention(kernel_decode))
        fuse(module, structure, packs=False)
        return module, structure

    def memory(self, swap_size: int) -> PoolMemory:
        """The device's free memory; swapped blocks are in host memory."""
        return accelerator_memory(self._read_memory)

    def can_cut_chunks(self, model: LoadedModel) -> bool:
        """False: a step on the device cannot be truncated."""
        return False

    def runner(self, model: LoadedModel, config: SchedulerConfig) -> Runner:
        """See `base.Backend`."""
        return Runner.sized(model, config)
