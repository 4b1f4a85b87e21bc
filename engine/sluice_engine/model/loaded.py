"""A loaded model and its properties: what the loader gives the engine and its runner."""

from dataclasses import dataclass

import torch

from sluice_engine.grammar.compiler import GrammarCompiler
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.pooling.pooled_model import PooledModel
from sluice_engine.model.pooling.task import Task


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and its properties. An embedding or scoring model sets `pooled`, keeps no KV and has no end-of-sequence
    token; its `module` is the encoder.
    """

    module: torch.nn.Module
    device: torch.device
    dtype: torch.dtype
    kv_shape: KVShape
    max_model_length: int
    vocab_size: int  # width of the logits; token ids at or beyond it are rejected
    eos_ids: frozenset[int]
    grammars: GrammarCompiler | None = None  # None for a folder without tokenizer.json
    task: Task = "generate"
    pooled: PooledModel | None = None
    ranks: int = 1  # that share the model

    @property
    def faults(self) -> type[Exception]:
        """The errors of a step that one request may have caused. With several ranks only those of its values, which all
        ranks raise: after any other error the ranks would compute different steps.
        """
        return Exception if self.ranks == 1 else ValueError
