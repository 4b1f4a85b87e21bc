"""The options of `sluice serve` as one frozen value that both processes share.

The HTTP process parses and validates it (errors name the option). The engine process receives it as JSON.
"""

from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from sluice_engine.limits import LIMIT_NAMES, Limits
from sluice_perfmodel.step_time import StepTimeModel

AttentionBackend = Literal["auto", "sluice", "torch"]
Quantization = Literal["none", "int8", "fp8"]

SWAP_SIZE: Final = 64 << 20


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of `sluice serve`, validated. Times are in seconds, sizes in bytes."""

    model: str  # a folder with config.json, *.safetensors and a tokenizer
    served_name: str
    task: str = "auto"  # auto | generate | embed | score; auto: derived from the model's folder
    pooling: str = "auto"  # embeddings: auto | mean | cls | last; auto: the folder's setting
    dtype: str = "auto"  # auto | float32 | bfloat16 | float16
    quantization: Quantization = "none"  # int8: of a CPU's compiled decoder; fp8: of a GPU's fused one
    device: str = "auto"  # auto | cpu | cuda; "cuda" without one visible is an error, never a fallback
    attention_backend: AttentionBackend = "auto"  # on a GPU; auto: sluice's kernels where they support the model
    tensor_parallel: int = 1  # accelerators that share the model, one process each
    max_model_length: int | None = None  # None: the value in the model's config
    # Bytes on all accelerators; None: kv_memory_fraction of the memory left beside weights and a step.
    kv_size: int | None = None
    kv_memory_fraction: float = 0.9
    block_size: int = 16
    max_num_seqs: int = 256  # hard limit; per-sequence buffers are allocated for it
    limits: Limits = Limits()  # the base limits
    policy: str = "fcfs"  # fcfs | priority | srpf | edf | fair
    speculation: Literal["auto", "on", "off"] = "auto"  # prompt-lookup drafts; auto: while they save time
    # Bytes of host memory, of all ranks, for swapped-out KV blocks; 0: preempted requests recompute.
    swap_size: int = SWAP_SIZE
    overlap: bool = True  # plan and prepare the next step while the current one runs
    threads: int | None = None  # torch threads; None: from the cgroup's cpu.max
    pace: StepTimeModel | None = None  # development: delay each step to this model's predicted time
    drain_seconds: float = 300.0
    grace_seconds: float = 5.0

    @property
    def base_limits(self) -> Limits:
        """The limits at start, with at most as many running requests as there are buffers."""
        return replace(self.limits, concurrency_max=min(self.limits.concurrency_max, self.max_num_seqs))


def engine_options(**values: Any) -> EngineOptions:
    """Options from one flat set of keywords: fields of `EngineOptions`, and fields of `Limits` beside them."""
    limits = Limits(**{name: values.pop(name) for name in LIMIT_NAMES if name in values})
    return EngineOptions(**values, limits=limits)
