"""The CPU as a backend: the compiled decoder where it computes the model, else torch with the compiled attention."""

import logging
from typing import Final, cast

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from sluice_engine.backend.base import OnBytes, ReadModule
from sluice_engine.backend.computed_dtype import processor_computes_bf16
from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.acceptance import compile_forward
from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.backend.pool_memory import PoolMemory, host_memory
from sluice_engine.backend.probe import OutputMismatch
from sluice_engine.backend.runner import Runner
from sluice_engine.config import EngineOptions, Quantization
from sluice_engine.errors import InvalidOption, ModelInvalid
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.attention import PagedAttention, set_attention
from sluice_engine.model.fusion import fuse
from sluice_engine.model.introspection import Structure
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.model.pooling.auto_class import auto_class, may_lack
from sluice_engine.model.pooling.task import Task
from sluice_engine.model.pretrained import Checkpoint, from_folder

_log = logging.getLogger(__name__)
_CPU: Final = torch.device("cpu")


class CpuBackend:
    """See `base.Backend`."""

    device = _CPU

    def __init__(self, quantization: Quantization = "none") -> None:
        self._quantization = quantization

    def native_dtype(self, checkpoint: torch.dtype) -> torch.dtype:
        """The checkpoint's dtype if it is float32, or bfloat16 and the processor has its instructions; else float32."""
        if checkpoint == torch.float32:
            return checkpoint
        if checkpoint == torch.bfloat16 and processor_computes_bf16():
            _log.info("computing in bfloat16, the checkpoint's dtype, which this processor has instructions for")
            return checkpoint
        _log.info("computing in float32: this processor has no instructions for the checkpoint's %s", checkpoint)
        return torch.float32

    def read(self, checkpoint: Checkpoint, on_bytes: OnBytes) -> torch.nn.Module:
        """By transformers, which maps the files into memory."""
        module: torch.nn.Module = from_folder(
            AutoModelForCausalLM, checkpoint.folder, checkpoint.config, checkpoint.dtype
        )
        return module

    def read_pooled(self, checkpoint: Checkpoint, task: Task, on_bytes: OnBytes) -> PreTrainedModel:
        """As `read`. Raises ModelInvalid that names what the files lack."""
        folder, config = checkpoint.folder, checkpoint.config
        auto = auto_class(folder, task, config)
        module, report = from_folder(auto, folder, config, checkpoint.dtype, output_loading_info=True)
        if lacking := sorted(name for name in report["missing_keys"] if not may_lack(name, task)):
            raise ModelInvalid(
                f"The weights in {folder} lack {len(lacking)} that {type(module).__name__} needs to {task} "
                f"({', '.join(lacking[:3])}); save the whole model with save_pretrained."
            )
        return cast(PreTrainedModel, module)

    def kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """int8 with int8 weights: of many streams, keys and values are a third of what a step reads."""
        return torch.int8 if self._quantization == "int8" else dtype

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        """The module, run by the compiled decoder or with compiled attention and fused layers. Raises InvalidOption for
        int8 weights of a model that the compiled decoder does not run.
        """
        kernel = native.find(torch.get_num_threads())
        module, structure = read()
        try:
            refused = compile_forward(module, structure, structure.kv_shape(dtype), kernel, self._quantization)
            if refused is not None:
                _log.info("the model's layers are run by torch: %s", refused)
        except OutputMismatch as difference:
            refused = f"the compiled decoder gives other logits than this model ({difference})"
            if self._quantization == "none":
                _log.warning("the model's layers are run by torch: %s", refused)
                module, structure = read()
        if refused is None:
            return module, structure
        if self._quantization != "none":
            raise InvalidOption(
                f"--quantization {self._quantization} is computed by the compiled decoder, which does not run this "
                f"model: {refused}. Leave the option out to compute in {str(dtype).removeprefix('torch.')}."
            )
        set_attention((call.module for call in structure.calls), PagedAttention(native=kernel))
        fuse(module, structure, packs=True)
        return module, structure

    def attend_texts(self, encoder: torch.nn.Module) -> None:
        """torch's own attention serves them."""

    def memory(self, swap_size: int) -> PoolMemory:
        """What the cgroup leaves, without `swap_size` bytes for swapped blocks."""
        return host_memory(swap_size)

    def kv_memory(self, model: LoadedModel, options: EngineOptions) -> PoolMemory:
        """What the cgroup leaves: the buffers of a step are small beside it."""
        return self.memory(options.swap_size)

    def can_cut_chunks(self, model: LoadedModel) -> bool:
        """True for the compiled decoder, if all layers share one group."""
        return isinstance(model.module.forward, NativeDecoder) and model.kv_shape.groups.windows == (None,)

    def runner(self, model: LoadedModel, config: CacheConfig) -> Runner:
        """See `base.Backend`."""
        return Runner.sized(model, config)
