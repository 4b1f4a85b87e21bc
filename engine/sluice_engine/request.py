"""One request as the scheduler sees it: tokens it knows, tokens whose KV is computed, blocks it holds.

No phases: a request is served by computing until `computed` catches up with `known`; prefill, chunks, prefix hits,
recompute after a preemption and decode all fall out of that one rule. Standard library only, so that the simulator
runs without torch.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. `seed` is always set: randomness is a function of (seed, position) alone."""

    temperature: float = 0.0  # 0 is greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0  # 0: off
    presence_penalty: float = 0.0  # on generated tokens
    frequency_penalty: float = 0.0  # on generated tokens, by count
    repetition_penalty: float = 1.0  # on prompt and generated tokens; 1: off
    logit_bias: tuple[tuple[int, float], ...] = ()
    barred: tuple[int, ...] = ()  # ids that may not be chosen for a position before `stops_from`
    stops_from: int = 0
    logprobs: int | None = None  # how many of the most likely tokens to report beside the chosen one; None: none at all

    @property
    def remembers(self) -> bool:
        """Whether the choice depends on the tokens before it."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0


class TokenLogprob(NamedTuple):
    """Natural logarithms of one chosen token's probability and of the most likely ones, (token id, logprob), most
    likely first. They say what the model computed, before bias, penalties and temperature."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, eq=False)
class Request:
    """A request inside the engine. `known` is prompt + generated tokens; KV of the first `computed` of them is cached."""

    request_id: str
    known: list[int]
    max_tokens: int
    arrived_at: float  # monotonic seconds
    stop_ids: frozenset[int] = frozenset()  # a sampled token in here ends the request and is not delivered
    sampling: Sampling = field(default_factory=Sampling)
    priority: int = 0  # −100..100, higher is sooner
    tenant: str = ""
    ttft_target: float | None = None  # seconds from arrival; None: none of its own, so never refused for it
    itl_target: float | None = None  # seconds; None: the engine's
    whole: bool = False  # computed in one step or not at all, for what the model says of it; no KV, no tokens after it
    token_types: tuple[int, ...] = ()  # of a whole request: one per token; empty: all 0
    order: int = 0  # how many came before it
    prompt_length: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)  # the block table
    gone: int = 0  # leading entries of it that are holes: those blocks left the window
    hashes: list[bytes] = field(default_factory=list)  # chained, one per full block of `known`
    indexed: int = 0  # leading blocks offered to the prefix index
    slot: int = -1  # row in the runner's per-sequence tables; -1 while waiting
    begun: int | None = None  # the step in which it (again) began to run; None: it does not run
    swapped: list[int] = field(default_factory=list)  # host blocks that keep its first `swapped_tokens` while it waits
    swapped_tokens: int = 0
    pending: bool = False  # the last known token stands for one that is still being computed
    cached_tokens: int = 0  # prompt tokens found in the prefix cache at first admission
    prompt_counted: bool = False  # in the totals of prompt tokens: its own, or that of the sample that it waited for
    first_scheduled_at: float | None = None
    last_token_at: float | None = None
    forked: bool = False  # began from another's blocks, or lent its own: the next row must see to its last block
    steered: bool = False  # stops after each token until it is told how to go on (beam search)
    delivered: bool = False  # the first token is out
    preemptions: int = 0

    def __post_init__(self) -> None:
        """The prompt is what is known at the start."""
        self.prompt_length = len(self.known)

    def sibling(self, request_id: str, sampling: Sampling) -> "Request":
        """Another sample of the same prompt that has not begun."""
        return Request(
            request_id=request_id,
            known=self.known[: self.prompt_length],
            max_tokens=self.max_tokens,
            arrived_at=self.arrived_at,
            stop_ids=self.stop_ids,
            sampling=sampling,
            priority=self.priority,
            tenant=self.tenant,
            ttft_target=self.ttft_target,
            itl_target=self.itl_target,
        )

    @property
    def generated(self) -> int:
        """Tokens produced so far."""
        return len(self.known) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Known tokens whose KV is still to compute; 1 for a decoding request."""
        return len(self.known) - self.computed

    @property
    def waits_for_word(self) -> bool:
        """Whether a steered request has said all that it can until it is told how to go on."""
        return self.steered and self.remaining == 0
