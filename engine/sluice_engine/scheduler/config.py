"""What does not change while a scheduler serves."""

from dataclasses import dataclass, field

from sluice_engine.scheduler.policies import POLICIES
from sluice_engine.scheduler.speculation import Mode


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The pool must hold one request of `max_model_length` tokens, or of what its windows show of them."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_model_length: int = 8192
    prefix_cache: bool = True
    policy: str = "fcfs"  # one of policies.POLICIES
    late_last: bool = True  # who cannot be in time any more waits behind all that can
    predicted_admission: bool = True  # admit by the predicted peak of KV; off: by what is held now and a margin
    windows: tuple[int | None, ...] = (None,)  # by group of layers: tokens that they see, a token's own included
    host_blocks: int = 0  # in host memory, for requests that are preempted; 0: they compute again
    swap_block_seconds: float = 0.0  # measured: what it takes to copy one block out, or back
    gives_up: bool = False  # whether the runner can give up a chunk's end in a step that runs late (`../deadline.py`)
    speculation: Mode = "off"  # whether decoding requests draft; auto: while the step-time model says that it pays
    # What follows from the windows, once: these are asked for each request of each step.
    groups: int = field(init=False, default=1)  # blocks that a stretch of `block_size` tokens takes: one for each group
    sliding: int = field(init=False, default=0)  # so many of them are given back when the stretch has left the window
    window: int | None = field(init=False, default=None)  # tokens that layers see that slide; None where none does

    def __post_init__(self) -> None:
        """Raises ValueError where a maximal request could never run."""
        seen = {window for window in self.windows if window is not None}
        if not self.windows or len(seen) > 1 or any(window < 1 for window in seen):
            raise ValueError(f"windows are of one size, of one token or more, or None for all; not {self.windows}")
        object.__setattr__(self, "groups", len(self.windows))
        object.__setattr__(self, "sliding", len(self.windows) - self.windows.count(None))
        object.__setattr__(self, "window", max(seen, default=None))
        # A window at its worst begins and ends inside blocks, and has just taken the next one.
        if self.num_blocks < self.blocks_held(self.max_model_length, 2 * self.block_size):
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one request of "
                f"{self.max_model_length} tokens"
            )
        if self.policy not in POLICIES:
            raise ValueError(f"there is no policy {self.policy!r}; choose one of {', '.join(POLICIES)}")

    def blocks_held(self, tokens: int, ahead: int) -> int:
        """Blocks that one request of so many tokens holds at most, with `ahead` tokens beside its window."""
        size, window = self.block_size, self.window
        stretches = -(-tokens // size)
        if window is None:
            return self.groups * stretches
        return (self.groups - self.sliding) * stretches + self.sliding * min(stretches, -(-(window + ahead) // size))
