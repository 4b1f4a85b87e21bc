"""Engine startup before the first request: load the model, allocate the KV pool, warm up a few shapes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from sluice_engine import messages
from sluice_engine.backend.base import Backend, TextRunner
from sluice_engine.backend.choose import choose_backend
from sluice_engine.backend.parallel.group import RankFailed
from sluice_engine.backend.pooled_runner import PooledRunner
from sluice_engine.backend.resources import binary_size, processors
from sluice_engine.backend.threads import torch_threads
from sluice_engine.config import EngineOptions
from sluice_engine.core.load_progress import LoadProgress
from sluice_engine.core.warmup import warm_up
from sluice_engine.errors import InsufficientMemory, InvalidOption
from sluice_engine.model.kv_cache import blocks_that_fit
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.model.loader import load_model
from sluice_engine.scheduler import SchedulerConfig

SCORED_LOGITS_BYTES: Final = 64 << 20  # of float32 logits that give the logprobs of prompts in one step

Progress = Callable[[messages.Loading], None]


class LoadedEngine:
    """A loaded model and its runner. Raises an `errors.StartError` when it cannot start.

    `backend`: None picks the one of `options.device`.
    """

    def __init__(
        self,
        options: EngineOptions,
        on_progress: Progress,
        clock: Callable[[], float],
        backend: Backend | None = None,
    ) -> None:
        self.load_seconds: dict[str, float] = {}
        self.threads = options.threads or processors()
        with torch_threads(self.threads):
            begun = clock()
            on_progress(messages.Loading("load", 0.0, 0.0))
            backend = backend or _single(options)
            self.model: LoadedModel = load_model(options, backend, LoadProgress(on_progress, clock).on_bytes)
            self.load_seconds["load"] = clock() - begun
            on_progress(messages.Loading("load", 1.0, self.load_seconds["load"]))
            begun = clock()
            on_progress(messages.Loading("warm", 0.0, 0.0))
            self.config = _sized(self.model, options, backend)
            self.runner = _runner(self.model, self.config, backend)
            warm_up(self.runner, self.config, options.limits.max_batched_tokens, self.model.vocab_size)
            if not isinstance(self.runner, PooledRunner) and self.config.host_blocks:
                self.config = replace(self.config, swap_block_seconds=self.runner.swap_seconds())
            self.load_seconds["warm"] = clock() - begun
            on_progress(messages.Loading("warm", 1.0, self.load_seconds["warm"]))

    def ready(self, paced: bool) -> messages.Ready:
        """The message that tells the HTTP process that the engine serves."""
        return messages.Ready(
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


def _single(options: EngineOptions) -> Backend:
    """The backend of an engine on one device. Raises InvalidOption for several."""
    if options.tensor_parallel > 1:
        raise InvalidOption(
            f"--tensor-parallel {options.tensor_parallel} needs a process for each accelerator, and this engine lives in "
            f"its caller's process. Use `sluice serve`, or leave the option out."
        )
    return choose_backend(options.device, options.attention_backend, options.quantization)


def _sized(model: LoadedModel, options: EngineOptions, backend: Backend) -> SchedulerConfig:
    """The scheduler's sizes for a loaded model, with a KV pool sized from the memory that is left."""
    if (ranks := options.tensor_parallel) > 1:  # each has an equal part of every block
        kv_size = None if options.kv_size is None else options.kv_size // ranks
        options = msgspec.structs.replace(options, kv_size=kv_size, swap_size=options.swap_size // ranks)
    swap = 0 if model.pooled is not None else options.swap_size
    measured = model.pooled is None and options.kv_size is None
    memory = backend.kv_memory(model, options) if measured else backend.memory(swap)
    return SchedulerConfig(
        num_blocks=blocks_that_fit(options, model.kv_shape, model.max_model_length, memory),
        block_size=options.block_size,
        max_num_seqs=options.max_num_seqs,
        max_model_length=model.max_model_length,
        windows=model.kv_shape.groups.windows,
        host_blocks=swap and swap // model.kv_shape.block_bytes(options.block_size),
        policy=options.policy,
        speculation=options.speculation,
        scored_per_step=max(1, SCORED_LOGITS_BYTES // (4 * model.vocab_size)),
        # With a pace, wall time does not measure the step.
        chunk_deadlines=options.pace is None and backend.can_cut_chunks(model),
    )


def _runner(model: LoadedModel, config: SchedulerConfig, backend: Backend) -> TextRunner | PooledRunner:
    if model.pooled is not None:
        return PooledRunner(model.pooled, model.vocab_size, model.device)
    try:
        return backend.runner(model, config)
    except RankFailed:  # the rank whose allocation failed has the reason
        raise
    except (MemoryError, RuntimeError) as error:  # torch reports a failed allocation as RuntimeError
        size = config.num_blocks * model.kv_shape.block_bytes(config.block_size)
        raise InsufficientMemory(
            f"A KV pool of {binary_size(size)} could not be allocated: {error}. Give the engine more memory, or a smaller "
            f"pool with --kv-size."
        ) from error
