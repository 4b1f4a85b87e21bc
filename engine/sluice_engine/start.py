"""Everything that stands before the first request: the model loaded, the pool set aside, a few shapes warmed up."""

import gc
from collections.abc import Callable
from dataclasses import replace

import torch

from sluice_engine import ipc
from sluice_engine.admission import Bounds
from sluice_engine.model.decoder import NativeDecoder
from sluice_engine.model.errors import InsufficientMemory
from sluice_engine.model.kv import blocks_that_fit
from sluice_engine.model.load import LoadedModel, load_model
from sluice_engine.model.resources import memory_left, processors
from sluice_engine.options import EngineOptions
from sluice_engine.runner import Runner
from sluice_engine.scheduler import SchedulerConfig
from sluice_engine.warm import warm_up
from sluice_engine.whole_runner import WholeRunner

Progress = Callable[[ipc.Loading], None]


class Started:
    """A loaded model and its runner. Raises a `model.errors.StartError` when it cannot start."""

    def __init__(self, options: EngineOptions, on_progress: Progress, clock: Callable[[], float]) -> None:
        self.load_seconds: dict[str, float] = {}
        torch.set_num_threads(options.threads or processors())
        begun = clock()
        on_progress(ipc.Loading("load", 0.0, 0.0))
        self.model: LoadedModel = load_model(options)
        self.load_seconds["load"] = clock() - begun
        on_progress(ipc.Loading("load", 1.0, self.load_seconds["load"]))
        begun = clock()
        on_progress(ipc.Loading("warm", 0.0, 0.0))
        swap = 0 if self.model.pooled is not None else options.swap_size
        left = max(0, memory_left() - swap)
        self.config = SchedulerConfig(
            num_blocks=blocks_that_fit(options, self.model.kv_shape, self.model.max_model_length, left),
            block_size=options.block_size,
            max_num_seqs=options.max_num_seqs,
            max_model_length=self.model.max_model_length,
            windows=self.model.kv_shape.groups.windows,
            host_blocks=swap and swap // self.model.kv_shape.block_bytes(options.block_size),
            policy=options.policy,
            speculation=options.speculation,
            gives_up=_gives_up(self.model, options),
        )
        self.runner = _runner(self.model, self.config)
        warm_up(self.runner, self.config, options.max_batched_tokens, self.model.vocab_size)
        if isinstance(self.runner, Runner) and self.config.host_blocks:
            self.config = replace(self.config, swap_block_seconds=self.runner.swap_seconds())
        self.load_seconds["warm"] = clock() - begun
        on_progress(ipc.Loading("warm", 1.0, self.load_seconds["warm"]))
        gc.collect()
        gc.freeze()

    def ready(self, paced: bool) -> ipc.Ready:
        """What the HTTP process is told when the engine serves."""
        return ipc.Ready(
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=str(self.model.device),
            block_size=self.config.block_size / self.config.groups,
            num_blocks=self.config.num_blocks,
            max_model_length=self.model.max_model_length,
            vocab_size=self.model.vocab_size,
            task=self.model.task,
            vector_size=0 if self.model.pooled is None else self.model.pooled.size,
            paced=paced,
            load_seconds=self.load_seconds,
        )


def bounds_of(options: EngineOptions) -> Bounds:
    """The limits that the engine is started with."""
    return Bounds(
        concurrency_min=options.concurrency_min,
        concurrency_max=min(options.concurrency_max, options.max_num_seqs),
        max_queue=options.max_queue,
        max_batched_tokens=options.max_batched_tokens,
        kv_watermark=options.kv_watermark,
        itl_target=options.itl_target,
        ttft_target=options.ttft_target,
    )


def _gives_up(model: LoadedModel, options: EngineOptions) -> bool:
    """Whether the model can give up the end of a chunk: the compiled decoder runs it, and all layers cache alike. Where a
    pace holds each step's time, the clock says nothing about the step."""
    compiled = isinstance(model.module.forward, NativeDecoder)
    return compiled and model.kv_shape.groups.windows == (None,) and options.pace is None


def _runner(model: LoadedModel, config: SchedulerConfig) -> Runner | WholeRunner:
    if model.pooled is not None:
        return WholeRunner(model.pooled, model.vocab_size, model.device)
    try:
        return Runner(
            model,
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            host_blocks=config.host_blocks,
        )
    except (MemoryError, RuntimeError) as error:  # torch reports a failed allocation as RuntimeError
        size = config.num_blocks * model.kv_shape.block_bytes(config.block_size)
        raise InsufficientMemory(
            f"A KV pool of {size} bytes could not be set aside: {error}. Give the engine more memory, or a smaller "
            f"pool with --kv-size."
        ) from error
