"""Messages between `fetch` and the download's process: its task, and one JSON object per line back."""

from pathlib import Path

import msgspec


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that the model must fit, and how it is to be served. Sizes in bytes."""

    free: int
    generates: bool  # False: nothing is cached
    dtype: str  # auto, or one of `model_memory.DTYPE_BYTES`
    max_model_length: int | None
    kv_size: int | None
    kv_share: float
    block_size: int  # tokens
    swap_size: int


class Task(msgspec.Struct, frozen=True):
    """One download."""

    uri: str
    cache: str
    stall_seconds: float
    lease_seconds: float
    memory: MemoryPlan | None = None  # None: it is not checked

    @property
    def cache_folder(self) -> Path:
        """The cache as a path."""
        return Path(self.cache)


class State(msgspec.Struct, frozen=True, tag="state"):
    """The progress of the model, whichever process downloads it. `total` is 0 until it is known."""

    received: int
    total: int


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The model is complete in `folder`."""

    folder: str
    revision: str


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The fields of a SourceError."""

    reason: str
    message: str
    transient: bool = False
    retry_after: float | None = None


FromWorker = State | Result | Failure
