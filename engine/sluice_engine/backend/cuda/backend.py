"""A CUDA device as a backend. On any other device its kernels are their references: the tests run it on a CPU."""

import logging

import torch

from sluice_engine.backend.base import ReadModule
from sluice_engine.backend.cuda.acceptance import fuse_forward
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.device_queue import CudaQueue, DeviceQueue, HostQueue
from sluice_engine.backend.cuda.graphs import Capture, CudaCapture, run_eagerly
from sluice_engine.backend.cuda.modules import swap_modules
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.backend.pool_memory import DeviceMemory, PoolMemory, accelerator_memory, cuda_memory
from sluice_engine.backend.probe import OutputMismatch
from sluice_engine.backend.runner import Runner
from sluice_engine.model.introspection import Structure
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.scheduler import SchedulerConfig

_log = logging.getLogger(__name__)


class CudaBackend:
    """See `base.Backend`. `read_memory` returns the device's free and total bytes. `queue` and `capture` enqueue work and
    capture graphs; None are those of CUDA, or of a device without them.
    """

    def __init__(
        self,
        device: torch.device,
        read_memory: DeviceMemory = cuda_memory,
        queue: DeviceQueue | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.device = device
        self._read_memory = read_memory
        on_cuda = device.type == "cuda"
        self._queue = queue or (CudaQueue() if on_cuda else HostQueue())
        self._capture = capture or (CudaCapture() if on_cuda else run_eagerly)

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
        """With decode graphs for a model that the fused decoder runs. See `base.Backend`."""
        decoder = model.module.forward
        if isinstance(decoder, FusedDecoder):
            return GraphRunner(model, decoder, config, self._queue, self._capture)
        return Runner.sized(model, config)
