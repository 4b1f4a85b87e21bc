"""A CUDA device as a backend. On any other device its kernels are their references: the tests run it on a CPU."""

import logging

import torch

from sluice_engine.backend.base import ReadModule
from sluice_engine.backend.cuda.acceptance import OutputMismatch, fuse_forward
from sluice_engine.backend.cuda.modules import swap_modules
from sluice_engine.backend.pool_memory import DeviceMemory, PoolMemory, accelerator_memory, cuda_memory
from sluice_engine.backend.runner import Runner
from sluice_engine.model.introspection import Structure
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.scheduler import SchedulerConfig

_log = logging.getLogger(__name__)


class CudaBackend:
    """See `base.Backend`. `read_memory` returns the device's free and total bytes."""

    def __init__(self, device: torch.device, read_memory: DeviceMemory = cuda_memory) -> None:
        self.device = device
        self._read_memory = read_memory

    def native_dtype(self, checkpoint: torch.dtype) -> torch.dtype:
        """The checkpoint's dtype."""
        return checkpoint

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        """The module, run by the fused decoder or with the kernels' attention and norms."""
        module, structure = read()
        try:
            fused = fuse_forward(module, structure, structure.kv_shape(dtype), self.device)
        except OutputMismatch as difference:
            _log.warning(
                "the fused decoder gives other logits than this model (%s): transformers' modules run it", difference
            )
            module, structure = read()
            fused = False
        if not fused:
            swap_modules(module, structure)
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
