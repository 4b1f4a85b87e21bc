"""The sizes of the KV cache, which do not change while an engine serves."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Blocks, the tokens in each, and which of the earlier tokens each group of layers attends to."""

    num_blocks: int
    block_size: int = 16  # tokens
    max_num_seqs: int = 256  # requests that run at once: each has a slot in the runner's per-sequence tables
    prefix_cache: bool = True
    windows: tuple[int | None, ...] = (None,)  # per group of layers: tokens in its window, the current one included
    host_blocks: int = 0  # in host memory, for preempted requests; 0: they are recomputed
    swap_block_seconds: float = 0.0  # measured: the time to copy one block out, or back
    # Derived from `windows` once, because they are read for each request of each step.
    groups: int = field(init=False, default=1)  # pool blocks per logical block: one per group of layers
    sliding: int = field(init=False, default=0)  # of these, blocks that are freed outside the sliding window
    window: int | None = field(init=False, default=None)  # tokens; None: no group has a sliding window

    def __post_init__(self) -> None:
        """Raises ValueError for windows of different sizes, or of no token."""
        sizes = {window for window in self.windows if window is not None}
        if not self.windows or len(sizes) > 1 or any(window < 1 for window in sizes):
            raise ValueError(f"windows are of one size, of one token or more, or None for all; not {self.windows}")
        object.__setattr__(self, "groups", len(self.windows))
        object.__setattr__(self, "sliding", len(self.windows) - self.windows.count(None))
        object.__setattr__(self, "window", max(sizes, default=None))

    def blocks_held(self, tokens: int, ahead: int) -> int:
        """The most blocks that one request of `tokens` tokens holds, with `ahead` tokens beside its window."""
        size, window = self.block_size, self.window
        logical_blocks = -(-tokens // size)
        if window is None:
            return self.groups * logical_blocks
        inside = min(logical_blocks, -(-(window + ahead) // size))
        return (self.groups - self.sliding) * logical_blocks + self.sliding * inside
