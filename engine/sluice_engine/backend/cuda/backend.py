"""A CUDA device as a backend. On any other device its kernels are their references: the tests run it on a CPU."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel

from sluice.models.quantisation import Quantisation, read_quantisation
from sluice_engine.backend.base import OnBytes, ReadModule
from sluice_engine.backend.cuda.acceptance import Fusing, fuse_forward
from sluice_engine.backend.cuda.attention import Attention, Heads, choose_attention, flash_texts
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.device_queue import CudaQueue, DeviceQueue, HostQueue
from sluice_engine.backend.cuda.eager import EagerRunner
from sluice_engine.backend.cuda.graphs import Capture, CudaCapture, run_eagerly
from sluice_engine.backend.cuda.loading.fp8 import Fp8Layers
from sluice_engine.backend.cuda.loading.quantised import QuantisedLayers
from sluice_engine.backend.cuda.loading.weights import Target, read_module, without_memory
from sluice_engine.backend.cuda.memory import CudaMemory, DeviceMemory, Trial, device_memory, measure, pool_memory
from sluice_engine.backend.cuda.modules import swap_modules
from sluice_engine.backend.cuda.ops.products import Quantised, unquantised
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.backend.parallel.group import Group
from sluice_engine.backend.parallel.shard import check_planned, connect, sharded_weight, share_of
from sluice_engine.backend.pool_memory import PoolMemory
from sluice_engine.backend.probe import OutputMismatch
from sluice_engine.backend.runner import Runner
from sluice_engine.config import AttentionBackend, EngineOptions, Quantization
from sluice_engine.errors import InvalidOption
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.attention import PagedAttention, set_attention
from sluice_engine.model.introspection import Structure
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.model.pooling.auto_class import auto_class, may_lack
from sluice_engine.model.pooling.task import Task
from sluice_engine.model.pretrained import Checkpoint

_log = logging.getLogger(__name__)


class CudaBackend:
    """See `base.Backend`. `memory` measures the device's memory, `queue` and `capture` enqueue work and capture graphs;
    None are those of CUDA, or of a device without them. `attention` and `quantization` are the options. `group`: the ranks
    that share the model.
    """

    def __init__(
        self,
        device: torch.device,
        memory: DeviceMemory | None = None,
        queue: DeviceQueue | None = None,
        capture: Capture | None = None,
        attention: AttentionBackend = "auto",
        group: Group | None = None,
        quantization: Quantization = "none",
    ) -> None:
        self._fp8 = quantization == "fp8"
        self.device, self._asked, self._graphs, self._group = device, attention, True, group
        self._memory = memory or CudaMemory()
        self._packed: tuple[Path, Quantisation] | None = None  # of the folder that was read, if it is quantised
        on_cuda = device.type == "cuda"
        self._queue = queue or (CudaQueue() if on_cuda else HostQueue())
        self._capture = capture or (None if on_cuda else run_eagerly)

    def native_dtype(self, checkpoint: torch.dtype) -> torch.dtype:
        """The checkpoint's dtype."""
        return checkpoint

    def read(self, checkpoint: Checkpoint, on_bytes: OnBytes) -> torch.nn.Module:
        """Tensor by tensor (`loading/weights.py`), of which a rank keeps its parts. Raises InvalidOption and
        UnsupportedArchitecture for a model that the ranks cannot share.
        """
        quantisation = read_quantisation(checkpoint.config.__dict__)
        self._packed = (checkpoint.folder, quantisation) if isinstance(quantisation, Quantisation) else None
        if (group := self._group) is None:
            return read_module(checkpoint, Target(self.device, self._queue, on_bytes))
        share = share_of(checkpoint.config.get_text_config().to_dict(), group.rank, group.size)
        check_planned(without_memory(checkpoint), share)
        keep = partial(sharded_weight, share)
        module = read_module(checkpoint, Target(self.device, self._queue, on_bytes, keep=keep))
        connect(module, share, group)
        return module

    def read_pooled(self, checkpoint: Checkpoint, task: Task, on_bytes: OnBytes) -> PreTrainedModel:
        """Tensor by tensor, as `read`."""
        auto = auto_class(checkpoint.folder, task, checkpoint.config)
        target = Target(self.device, self._queue, on_bytes, may_lack=partial(may_lack, task=task))
        return cast(PreTrainedModel, read_module(checkpoint, target, auto))

    def load(self, read: ReadModule, dtype: torch.dtype) -> tuple[torch.nn.Module, Structure]:
        """The module, run by the fused decoder or with the kernels' attention and norms. Raises InvalidOption for fp8 weights
        of a model that the fused decoder does not run.
        """
        module, structure = read()
        attention = self._chosen(module, structure.kv_shape(dtype))
        try:
            shape = structure.kv_shape(dtype)
            with self._quantised_layers(module) as quantised:
                how = Fusing(attention, quantised, self._group, fp8=self._fp8)
                fused = fuse_forward(module, structure, shape, self.device, how)
        except OutputMismatch as difference:
            _log.warning(
                "the fused decoder gives other logits than this model (%s): transformers' modules run it", difference
            )
            module, structure = read()
            fused = False
        if not fused and self._fp8:
            raise InvalidOption(
                "--quantization fp8 is for models that the fused decoder runs, and it does not run this one; the log says "
                "why. Leave the option out."
            )
        if not fused:
            swap_modules(module, structure, attention, self._group)
        return module, structure

    @contextmanager
    def _quantised_layers(self, module: torch.nn.Module) -> Iterator[Quantised]:
        """The weights of the quantised layers of the folder that was read; the log says how many were used."""
        if self._fp8:
            fp8 = Fp8Layers()
            yield fp8
            _log.info("%d layers have fp8 weights", fp8.count)
        elif self._packed is None:
            yield unquantised
        elif self._group is not None:
            _log.info("quantised layers are computed from dequantised weights, because ranks share them")
            yield unquantised
        else:
            with QuantisedLayers(*self._packed, module) as layers:
                yield layers
            _log.info("%d layers keep their weights of %d bits", layers.packed, self._packed[1].bits)

    def _chosen(self, module: torch.nn.Module, shape: KVShape) -> Attention:
        """The attention of this model; the log has the reason."""
        heads = module.config.get_text_config().num_attention_heads // (1 if self._group is None else self._group.size)
        attention = choose_attention(self._asked, Heads(shape.head_dim, heads // shape.kv_heads, shape.dtype))
        self._graphs = attention.fixed_shapes
        _log.info("attention by %s: %s", attention.name, attention.reason)
        return attention

    def kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The model's own."""
        return dtype

    def attend_texts(self, encoder: torch.nn.Module) -> None:
        """By torch's flash attention where it supports them, because the kernels read pages."""
        set_attention(encoder.modules(), PagedAttention(texts=flash_texts))

    def memory(self, swap_size: int) -> PoolMemory:
        """The device's free memory; swapped blocks are in host memory."""
        return self._least(device_memory(self._memory))

    def kv_memory(self, model: LoadedModel, options: EngineOptions) -> PoolMemory:
        """Measured on a trial (`memory.py`)."""
        windows = model.kv_shape.groups.windows
        sizes = CacheConfig(
            num_blocks=len(windows),
            block_size=options.block_size,
            max_num_seqs=options.max_num_seqs,
            windows=windows,
        )
        trial = Trial(sizes, options.limits.max_batched_tokens)
        return self._least(pool_memory(measure(self._memory, partial(self.runner, model), model, trial)))

    def _least(self, memory: PoolMemory) -> PoolMemory:
        """The memory of the rank that has the least, because all have the same blocks."""
        if self._group is None:
            return memory
        return replace(memory, free=self._group.least(memory.free), most=self._group.least(memory.most))

    def can_cut_chunks(self, model: LoadedModel) -> bool:
        """False: a step on the device cannot be truncated."""
        return False

    def new_capture(self) -> Capture:
        """For the graphs of one runner. On CUDA it has a memory pool of its own: torch captures nothing more into the pool of
        graphs that are gone, as those of the trial.
        """
        return self._capture or CudaCapture(other_threads=self._group is not None)

    def runner(self, model: LoadedModel, config: CacheConfig) -> Runner:
        """With decode graphs for a model that the fused decoder runs by the kernels' attention. See `base.Backend`."""
        decoder = model.module.forward
        if isinstance(decoder, FusedDecoder) and self._graphs:
            runner: Runner = GraphRunner(model, decoder, config, self._queue, self.new_capture())
        else:
            runner = EagerRunner.compiled(model, config, fixed_tables=self._graphs)
        if self._group is not None:
            runner.share_masks(self._group.broadcast, leads=self._group.rank == 0)
        return runner
