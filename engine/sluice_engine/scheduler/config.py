"""The configuration of a scheduler, which does not change while it serves."""

from dataclasses import dataclass

from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.scheduler.policies import POLICIES
from sluice_engine.speculation.controller import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(CacheConfig):
    """The cache's sizes and the scheduler's options. The pool must hold one request of `max_model_length` tokens, or the
    part of it that the windows show."""

    max_model_length: int = 8192  # tokens
    policy: str = "fcfs"  # one of policies.POLICIES
    late_last: bool = True  # requests that cannot meet their TTFT deadline are served after all that can
    predicted_admission: bool = True  # admit by the predicted KV peak; off: by present use and a margin
    # Prompt tokens with logprobs per step: each has a row of logits as wide as the vocabulary.
    scored_per_step: int = 256
    chunk_deadlines: bool = False  # the runner can cut the end of a chunk in a slow step (`control.step_deadline`)
    speculation: Mode = "off"  # whether decoding requests draft; auto: while the step-time model predicts a gain

    def __post_init__(self) -> None:
        """Raises ValueError where a request of maximal length could never run, or for an unknown policy."""
        CacheConfig.__post_init__(self)
        # The worst case of a window begins and ends inside blocks, and has just taken the next block.
        if self.num_blocks < self.blocks_held(self.max_model_length, 2 * self.block_size):
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one request of "
                f"{self.max_model_length} tokens"
            )
        if self.policy not in POLICIES:
            raise ValueError(f"there is no policy {self.policy!r}; choose one of {', '.join(POLICIES)}")
