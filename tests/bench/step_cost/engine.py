"""The engine in whose loop steps are measured: no target bounds a step, and nothing is allocated while it runs."""

import gc
from pathlib import Path
from typing import Final

from sluice_engine.backend.runner import Runner
from sluice_engine.config import Quantization, engine_options
from sluice_engine.core.engine import EngineLoop

NO_TARGET: Final = 1e9  # seconds


def decoding_engine(folder: Path, threads: int, streams: int, quantization: Quantization = "none") -> EngineLoop:
    """A loaded engine for so many streams. Raises StartError."""
    options = engine_options(
        model=str(folder),
        served_name=folder.name,
        threads=threads,
        max_num_seqs=streams,
        max_model_length=1024,
        kv_size=512 << 20,  # all streams to their end, in float32 too
        speculation="off",
        quantization=quantization,
        concurrency_min=streams,
        concurrency_max=streams,
        itl_target=NO_TARGET,
        ttft_target=NO_TARGET,
    )
    engine = EngineLoop(options)
    if isinstance(engine.runner, Runner):
        for tensor in engine.runner.cache.tensors:
            tensor.zero_()  # allocates the pages, which a server does once
    gc.collect()
    gc.freeze()  # as the engine does after its start
    return engine
