"""Process-wide settings for an engine that has its own process. `LLM` runs in the caller's process and applies none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sluice_engine.backend.resources import processors
from sluice_engine.config import EngineOptions


@contextmanager
def own_process(options: EngineOptions) -> Iterator[None]:
    """Wraps the engine's start: sets torch's thread count and excludes objects created at start from garbage
    collection.
    """
    torch.set_num_threads(options.threads or processors())
    yield
    gc.collect()
    gc.freeze()
