"""One request as the scheduler sees it: tokens it knows, tokens whose KV is computed, blocks it holds.

No phases: a request is served by computing until `computed` catches up with `known`; prefill, chunks, prefix hits,
recompute after a preemption and decode all fall out of that one rule. Standard library only, so that the simulator
runs without torch.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. `seed` is always set: randomness is a function of (seed, position) alone."""

    temperature: float = 0.0  # 0 is greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    seed: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """A request inside the engine. `known` is prompt + generated tokens; KV of the first `computed` of them is cached."""

    request_id: str
    known: list[int]
    max_tokens: int
    arrived_at: float  # monotonic seconds
    stop_ids: frozenset[int] = frozenset()  # a sampled token in here ends the request and is not delivered
    sampling: Sampling = field(default_factory=Sampling)
    prompt_length: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)  # the block table
    hashes: list[bytes] = field(default_factory=list)  # chained, one per full block of `known`
    indexed: int = 0  # leading blocks offered to the prefix index
    slot: int = -1  # row in the runner's per-sequence tables; -1 while waiting
    cached_tokens: int = 0  # prompt tokens found in the prefix cache at first admission
    first_scheduled_at: float | None = None
    last_token_at: float | None = None
    delivered: bool = False  # the first token is out
    preemptions: int = 0

    def __post_init__(self) -> None:
        """The prompt is what is known at the start."""
        self.prompt_length = len(self.known)

    @property
    def generated(self) -> int:
        """Tokens produced so far."""
        return len(self.known) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Known tokens whose KV is still to compute; 1 for a decoding request."""
        return len(self.known) - self.computed
