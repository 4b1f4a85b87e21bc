"""What `sluice serve` was asked for: one frozen value that both processes get.

The HTTP process parses and checks it (errors name the option), the engine process receives it as JSON.
"""

from typing import Final, Literal

import msgspec

from sluice_law.steptime import StepTimeModel

SWAP_SIZE: Final = 64 << 20


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of `sluice serve`, checked. Times in seconds, sizes in bytes."""

    model: str  # a folder with config.json, *.safetensors and a tokenizer
    served_name: str
    task: str = "auto"  # auto | generate | embed | score; auto: what the model's folder says
    pooling: str = "auto"  # embeddings: auto | mean | cls | last; auto: the folder's own
    dtype: str = "auto"  # auto | float32 | bfloat16 | float16
    device: str = "auto"  # auto | cpu | cuda; "cuda" without one visible is an error, never a fallback
    max_model_length: int | None = None  # None: what the model's config says
    kv_size: int | None = None  # bytes; None: memory_fraction of what is left (CPU: of the cgroup's limit)
    kv_memory_fraction: float = 0.9
    block_size: int = 16
    max_num_seqs: int = 256  # hard ceiling; buffers are set aside for it
    max_batched_tokens: int = 2048
    concurrency_min: int = 1
    concurrency_max: int = 256
    max_queue: int = 1024
    kv_watermark: float = 1.0
    itl_target: float = 0.05
    ttft_target: float = 2.0
    policy: str = "fcfs"  # fcfs | priority | srpf | edf | fair
    speculation: Literal["auto", "on", "off"] = "auto"  # drafts by prompt lookup; auto: while they pay
    swap_size: int = SWAP_SIZE  # bytes of host memory for what preempted requests have computed; 0: they compute again
    overlap: bool = True  # plan and prepare the next step while one runs
    threads: int | None = None  # torch threads; None: from the cgroup's cpu.max
    pace: StepTimeModel | None = None  # development: hold each step to this model
    drain_seconds: float = 300.0
    grace_seconds: float = 5.0
