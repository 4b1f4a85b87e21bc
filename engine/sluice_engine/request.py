"""One request in the scheduler: its known tokens, the tokens with computed KV, and the blocks that it holds.

A request has no phases. Each step computes tokens until `computed` equals `known`; prefill, chunked prefill, prefix
hits, recompute after a preemption and decode all follow from that rule. The module uses the standard library only, so
that the simulator runs without torch.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from sluice_engine.sampling_params import GREEDY, SamplingParams


class TokenLogprob(NamedTuple):
    """Natural logarithm of the sampled token's probability, and the top tokens as (token id, logprob), most likely
    first. The values come from the raw logits, before bias, penalties and temperature. `rank` is that of a prompt token
    among all tokens, the most likely one having 1; 0 for sampled tokens.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """A request in the engine. `known` is prompt + output tokens; KV of the first `computed` of them is cached."""

    request_id: str
    known: list[int]
    max_tokens: int
    arrived_at: float  # monotonic seconds
    stop_ids: frozenset[int] = frozenset()  # a sampled token in this set ends the request and is not delivered
    sampling: SamplingParams = GREEDY  # its seed is set where randomness matters
    priority: int = 0  # −100..100, higher is sooner
    tenant: str = ""
    cache_salt: str = ""  # cached prefixes are shared only within one tenant and salt
    offered_before: bool = False  # another replica rejected it: that one counted its arrival
    waited: float = 0.0  # seconds since its arrival that it spent in a gateway's queue
    last_attempt: bool = False  # its client gives up if it is rejected
    prompt_tag: str = ""  # names the prompt in the events of the cache, until these have said where it is stored
    ttft_target: float | None = None  # seconds from arrival; None: no own target, so it is never rejected for it
    itl_target: float | None = None  # seconds; None: the engine's
    pooling: bool = False  # embedding or score: computed in a single step, caches no KV and has no output tokens
    token_types: tuple[int, ...] = ()  # of a pooling request, one per token; empty: all 0
    order: int = 0  # arrival index
    prompt_length: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)  # the block table
    freed_leading: int = 0  # leading logical blocks that are HOLEs because they left the sliding window
    hashes: list[bytes] = field(default_factory=list)  # chained, one per full block of `known`
    indexed: int = 0  # leading blocks registered in the prefix index
    slot: int = -1  # row in the runner's per-sequence tables; -1 while waiting
    started_step: int | None = None  # the step in which it was last admitted; None: not running
    swapped: list[int] = field(default_factory=list)  # host blocks with the KV of its first `swapped_tokens`
    swapped_tokens: int = 0
    pending: bool = False  # the last known token is a placeholder for one that a running step computes
    scores_prompt: bool = False  # reports the logprobs of its prompt's tokens, all but the first
    scored: int = 0  # prompt tokens so far whose logits gave the logprob of the next one
    cached_tokens: int = 0  # prompt tokens hit in the prefix cache at first admission
    prompt_counted: bool = False  # its prompt (or its sample group's) is in the prompt-token totals
    first_scheduled_at: float | None = None
    last_token_at: float | None = None
    forked: bool = False  # shares blocks with a fork: the next row may need a copy-on-write of the last block
    steered: bool = False  # pauses after each token until it receives external input (beam search)
    delivered: bool = False  # the first token, or the first logprobs of the prompt, were delivered
    preemptions: int = 0
    exempt: bool = False  # keeps its place in the policy's order, however late its first token is

    def __post_init__(self) -> None:
        """Records the prompt length: initially `known` is the prompt."""
        self.prompt_length = len(self.known)
        self.scores_prompt = self.sampling.prompt_logprobs is not None

    def another_sample(self, request_id: str, sampling: SamplingParams) -> "Request":
        """A further sample of the same prompt, in its initial state."""
        return Request(
            request_id=request_id,
            known=self.known[: self.prompt_length],
            max_tokens=self.max_tokens,
            arrived_at=self.arrived_at,
            stop_ids=self.stop_ids,
            sampling=sampling,
            priority=self.priority,
            tenant=self.tenant,
            cache_salt=self.cache_salt,
            ttft_target=self.ttft_target,
            itl_target=self.itl_target,
            offered_before=self.offered_before,
            waited=self.waited,
        )

    @property
    def generated(self) -> int:
        """Output tokens produced so far."""
        return len(self.known) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Known tokens without computed KV; 1 for a decoding request."""
        return len(self.known) - self.computed

    @property
    def unscored(self) -> int:
        """Prompt tokens whose logits are still to give the logprob of the next one."""
        return self.prompt_length - 1 - self.scored if self.scores_prompt else 0

    @property
    def awaits_input(self) -> bool:
        """True if a steered request awaits external input: all its known tokens are computed."""
        return self.steered and self.remaining == 0
