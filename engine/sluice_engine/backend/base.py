"""The interface of a backend: the only part of the engine that depends on the device that computes."""

from collections.abc import Callable
from typing import Protocol

import torch
from transformers import PreTrainedModel

from sluice_engine.backend.pool_memory import PoolMemory
from sluice_engine.backend.runner import StepResult
from sluice_engine.config import EngineOptions
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.introspection import Structure
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.model.pooling.task import Task
from sluice_engine.model.pretrained import Checkpoint
from sluice_engine.scheduler import Plan

OnBytes = Callable[[int, int], None]  # bytes of weights that are loaded, and of all
ReadModule = Callable[[], tuple[torch.nn.Module, Structure]]  # transformers' module on the device; may be called again


class TextRunner(Protocol):
    """Executes plans of a generating model. Plans are prepared and executed in the same order; at most the preceding
    plan executes during a prepare.
    """

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """Convert the plan to tensors; the returned callable computes it."""

    def run(self, plan: Plan) -> StepResult:
        """Prepare and compute the plan."""

    def swap_seconds(self) -> float:
        """Measured seconds to copy one block to host memory or back, before serving."""


class Backend(Protocol):
    """A device and how the engine computes on it."""

    @property
    def device(self) -> torch.device:
        """Where weights and KV are."""

    def native_dtype(self, checkpoint: torch.dtype) -> torch.dtype:
        """The dtype to compute in when the user names none: the checkpoint's where the device computes in it."""

    def read(self, checkpoint: Checkpoint, on_bytes: OnBytes) -> torch.nn.Module:
        """transformers' module of the folder, with its weights on the device. Raises ModelInvalid."""

    def read_pooled(self, checkpoint: Checkpoint, task: Task, on_bytes: OnBytes) -> PreTrainedModel:
        """transformers' module of the folder to embed or to score, with its weights on the device. Raises ModelInvalid."""

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        """The module with its layers replaced by what this device computes faster, and its structure as it was read."""

    def kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the keys and values of a loaded model that computes in `dtype`; int8: `model/int8_entries.py`."""

    def attend_texts(self, encoder: torch.nn.Module) -> None:
        """Give the attention layers of a model of whole texts what this device computes faster."""

    def memory(self, swap_size: int) -> PoolMemory:
        """The memory that is free now."""

    def kv_memory(self, model: LoadedModel, options: EngineOptions) -> PoolMemory:
        """The memory that is left for the KV pool of a loaded model while it computes its largest step. Raises
        InsufficientMemory if that step cannot be computed at all.
        """

    def can_cut_chunks(self, model: LoadedModel) -> bool:
        """True if a late step of this model may truncate its prefill chunk."""

    def runner(self, model: LoadedModel, config: CacheConfig) -> TextRunner:
        """The model with a KV cache of `config.num_blocks`. Raises MemoryError or RuntimeError if that cannot be
        allocated.
        """
