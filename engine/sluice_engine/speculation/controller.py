"""Which requests draft how many tokens: as many as pay by the step-time model and the acceptance so far.

A step of T seconds that yields S tokens makes a token worth T / S. The i-th draft token of a request is accepted with
probability α^i and costs what the model predicts for one prompt token after that context, plus the measured surcharge of
steps with drafts. A request drafts while the expected gain exceeds the cost:

    α^i · T / S ≥ prefill_token + prefill_context · context + surcharge

and rests where that fails at i = 1, or where lookups find nothing. One step in PERIOD probes resting requests, so that
it detects a text that begins to repeat itself; one carries no drafts, so that the fit still observes plain steps.
"""

import math
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from sluice_engine.request import Request
from sluice_engine.speculation.draft_cost import DraftCost
from sluice_engine.speculation.ngram import PromptLookup

Mode = Literal["auto", "on", "off"]
MODES: Final[tuple[Mode, ...]] = ("auto", "on", "off")
MAX_DRAFT_TOKENS = 12  # draft tokens of one row: longer ones hardly gain, and blocks are set aside for them
PERIOD = 32  # steps
MIN_COST_SHARE = 0.02  # of a token's worth: the least cost of a draft token, whatever was measured
RESUME_MARGIN = 1.5  # by how much drafting must pay before a resting request resumes it
MAX_MISSES = 8  # lookups without a result before a request rests
PROBE_TOKENS = 4  # draft tokens that only measure whether the acceptance has changed
PROBES_PER_STEP = 8  # such requests in one step
DECAY = 0.9  # of a request's own counts per draft; the engine's own forget ten times as slowly
PRIOR = 2.0  # weight of the engine's own acceptance, in tested tokens
MIN_YIELD = 0.05  # accepted tokens per lookup, over all requests, below which a new request starts at rest


class Price(NamedTuple):
    """A token's worth in this step, and a draft token's cost: `token` + `context` · cached tokens. Seconds."""

    worth: float
    token: float
    context: float

    def cost(self, context: int) -> float:
        """Seconds of one draft token after `context` cached ones."""
        return max(0.0, self.token + self.context * context)

    def length(self, chance: float, context: int, margin: float = 1.0) -> int:
        """Draft tokens that pay: the largest i with chance^i · worth ≥ margin · cost; none where a token is worth 0."""
        if self.worth <= 0.0:
            return 0
        share = margin * self.cost(context) / self.worth
        share = max(share, MIN_COST_SHARE)
        if share > chance:
            return 0
        return min(MAX_DRAFT_TOKENS, int(math.log(share) / math.log(chance))) if chance < 1.0 else MAX_DRAFT_TOKENS


@dataclass(slots=True)
class _Counts:
    """Accepted draft tokens, and those that were tested: the accepted ones and the first wrong one of each draft."""

    accepted: float
    tested: float

    def add(self, drafted: int, accepted: int, keep: float) -> None:
        self.accepted = keep * self.accepted + accepted
        self.tested = keep * self.tested + min(drafted, accepted + 1)


@dataclass(slots=True)
class _RequestState:
    """Lookup and acceptance of one request."""

    lookup: PromptLookup = field(default_factory=PromptLookup)
    counts: _Counts = field(default_factory=lambda: _Counts(0.0, 0.0))
    misses: int = 0


class Speculation:
    """Drafts of all requests. `drafted` and `accepted` count tokens."""

    def __init__(self, mode: Mode = "off") -> None:
        self.mode = mode
        self.drafted = 0
        self.accepted = 0
        self.cost = DraftCost()
        self._requests: dict[str, _RequestState] = {}
        self._active: set[str] = set()
        self._engine = _Counts(1.0, 2.0)
        self._yield = 1.0  # accepted tokens per lookup, smoothed
        self._probed = 0  # where the next round of probes begins

    def is_open(self, step: int) -> bool:
        """Whether this step may carry drafts. They continue the tokens of the step before: it must be settled first."""
        turn = step % PERIOD
        if self.mode == "off" or turn == 0:
            return False
        return bool(self._active) or (self.is_probing(step) and bool(self._requests))

    def join(self, request: Request) -> None:
        """The request has its first output token: from now on it may draft."""
        if self.mode != "off" and request.request_id not in self._requests:
            self._requests[request.request_id] = _RequestState()
            if self.mode == "on" or self._yield > MIN_YIELD:
                self._active.add(request.request_id)

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._requests.pop(request_id, None)
        self._active.discard(request_id)

    def candidates(self, step: int, decoding: list[Request]) -> list[Request]:
        """The requests that may draft in this step: active ones, and in a probing step a few resting ones, in turns."""
        drafting = [request for request in decoding if request.request_id in self._active]
        if not self.is_probing(step):
            return drafting
        resting = [r for r in decoding if r.request_id not in self._active and r.request_id in self._requests]
        begin = self._probed % len(resting) if resting else 0
        self._probed = begin + PROBES_PER_STEP
        return drafting + (resting[begin:] + resting[:begin])[:PROBES_PER_STEP]

    def draft(self, request: Request, most: int, price: Price | None) -> tuple[int, ...]:
        """At most `most` draft tokens of one candidate. Without a price (mode "on") as many as are found."""
        stream = self._requests[request.request_id]
        if price is None:
            return stream.lookup.draft(request.known, min(most, MAX_DRAFT_TOKENS))
        active = request.request_id in self._active
        length = price.length(self._chance(stream), request.computed, 1.0 if active else RESUME_MARGIN)
        if active and length == 0:
            self._active.discard(request.request_id)
        wanted = length if active else length or PROBE_TOKENS
        found = stream.lookup.draft(request.known, min(most, wanted))
        self._looked_up(request.request_id, stream, bool(found), pays=length > 0)
        return found

    def settle(self, request_id: str, drafted: int, accepted: int) -> None:
        """Book the acceptance of a request's draft tokens."""
        self.drafted += drafted
        self.accepted += accepted
        self._engine.add(drafted, accepted, 1.0 - (1.0 - DECAY) / 10)
        self._yield += (accepted - self._yield) / 50
        stream = self._requests.get(request_id)
        if stream is not None:
            stream.counts.add(drafted, accepted, DECAY)

    def _chance(self, stream: _RequestState) -> float:
        """α: the request's own acceptance, with the engine's as the prior."""
        prior = PRIOR * self._engine.accepted / self._engine.tested
        return (stream.counts.accepted + prior) / (stream.counts.tested + PRIOR)

    def _looked_up(self, request_id: str, stream: _RequestState, found: bool, pays: bool) -> None:
        """Move a request between drafting and rest by the result of a lookup."""
        stream.misses = 0 if found else stream.misses + 1
        if found and pays:
            self._active.add(request_id)
        elif not found:
            self._yield -= self._yield / 50
            if stream.misses >= MAX_MISSES:
                self._active.discard(request_id)

    def is_probing(self, step: int) -> bool:
        """Whether this step probes resting requests."""
        return self.mode == "auto" and step % PERIOD == PERIOD // 2
