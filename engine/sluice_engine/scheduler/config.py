"""What does not change while a scheduler serves."""

from dataclasses import dataclass

from sluice_engine.scheduler.policies import POLICIES
from sluice_engine.scheduler.speculation import Mode


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The pool must hold one request of `max_model_length` tokens, or of what its window shows of them."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_model_length: int = 8192
    prefix_cache: bool = True
    policy: str = "fcfs"  # one of policies.POLICIES
    predicted_admission: bool = True  # admit by the predicted peak of KV; off: by what is held now and a margin
    window: int | None = None  # every layer sees so many tokens, a token's own included; None: some see all
    host_blocks: int = 0  # in host memory, for requests that are preempted; 0: they compute again
    swap_block_seconds: float = 0.0  # measured: what it takes to copy one block out, or back
    speculation: Mode = "off"  # whether decoding requests draft; auto: while the step-time model says that it pays

    def __post_init__(self) -> None:
        """Raises ValueError where a maximal request could never run."""
        if self.window is not None and self.window < 1:
            raise ValueError(f"a window has one token or more, not {self.window}")
        held = self.max_model_length
        if self.window is not None:  # at its worst: begins and ends inside blocks, and has just taken the next one
            held = min(held, self.window + 2 * self.block_size)
        if self.num_blocks * self.block_size < held:
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one request of "
                f"{self.max_model_length} tokens"
            )
        if self.policy not in POLICIES:
            raise ValueError(f"there is no policy {self.policy!r}; choose one of {', '.join(POLICIES)}")
