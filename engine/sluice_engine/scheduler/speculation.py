"""Who drafts how many tokens, and whether that pays: the step-time model decides, by what was accepted so far.

A step of T seconds that yields S tokens makes a token worth T / S. The i-th draft token of a request is accepted with a
chance of α^i and costs what the model says of one prompt token behind that context, plus what steps with drafts were
measured to take beyond it. A request drafts as far as the chance is worth the cost:

    α^i · T / S ≥ prefill_token + prefill_context · context + surcharge

and rests where that fails at i = 1, or where looking finds nothing. One step in PERIOD looks for those that rest, so
that a text that begins to repeat itself is noticed; one is kept free of drafts, so that the fit still sees plain steps.
"""

import math
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from sluice_engine.request import Request
from sluice_engine.scheduler.draftcost import DraftCost
from sluice_engine.scheduler.lookup import PromptLookup

Mode = Literal["auto", "on", "off"]
MODES: Final[tuple[Mode, ...]] = ("auto", "on", "off")
MOST = 12  # draft tokens of one row: longer ones hardly gain, and blocks are set aside for them
PERIOD = 32  # steps
LEAST_SHARE = 0.02  # of a token's worth: no draft token is free, whatever was measured
RETURN_MARGIN = 1.5  # by how much drafting must pay before one that rests begins again
MISSES = 8  # looks without a find before a request rests
PROBE = 4  # draft tokens that only ask whether the chance has changed
PROBES = 8  # such requests in one step
KEEP = 0.9  # of a request's own counts per draft; the engine's own forget ten times as slowly
PRIOR = 2.0  # tested tokens' worth of trust in the engine's own chance
WORTHLESS = 0.05  # accepted tokens per look, over all requests, below which a new request begins at rest


class Price(NamedTuple):
    """What a token is worth in this step, and what a draft token costs: `token` + `context` · cached tokens. Seconds."""

    worth: float
    token: float
    context: float

    def cost(self, context: int) -> float:
        """Seconds of one draft token behind so many cached ones."""
        return max(0.0, self.token + self.context * context)

    def length(self, chance: float, context: int, margin: float = 1.0) -> int:
        """Draft tokens that pay: the largest i with chance^i · worth ≥ margin · cost; none where a token is worth 0."""
        if self.worth <= 0.0:
            return 0
        share = margin * self.cost(context) / self.worth
        share = max(share, LEAST_SHARE)
        if share > chance:
            return 0
        return min(MOST, int(math.log(share) / math.log(chance))) if chance < 1.0 else MOST


@dataclass(slots=True)
class _Counts:
    """Accepted draft tokens, and those that were tested: the accepted ones and the first wrong one of each draft."""

    accepted: float
    tested: float

    def add(self, drafted: int, accepted: int, keep: float) -> None:
        self.accepted = keep * self.accepted + accepted
        self.tested = keep * self.tested + min(drafted, accepted + 1)


@dataclass(slots=True)
class _Stream:
    """One request."""

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
        self._streams: dict[str, _Stream] = {}
        self._active: set[str] = set()
        self._engine = _Counts(1.0, 2.0)
        self._yield = 1.0  # accepted tokens per look, smoothed
        self._probed = 0  # where the next round of probes begins

    def open(self, step: int) -> bool:
        """Whether this step may carry drafts. They continue the tokens of the step before: it must be settled first."""
        turn = step % PERIOD
        if self.mode == "off" or turn == 0:
            return False
        return bool(self._active) or (self.probes(step) and bool(self._streams))

    def join(self, request: Request) -> None:
        """The request has its first token: from now on it may draft."""
        if self.mode != "off" and request.request_id not in self._streams:
            self._streams[request.request_id] = _Stream()
            if self.mode == "on" or self._yield > WORTHLESS:
                self._active.add(request.request_id)

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._streams.pop(request_id, None)
        self._active.discard(request_id)

    def candidates(self, step: int, decoding: list[Request]) -> list[Request]:
        """Who may draft in this step: those that do, and in a probing step a few of the others, in turns."""
        drafting = [request for request in decoding if request.request_id in self._active]
        if not self.probes(step):
            return drafting
        resting = [r for r in decoding if r.request_id not in self._active and r.request_id in self._streams]
        begin = self._probed % len(resting) if resting else 0
        self._probed = begin + PROBES
        return drafting + (resting[begin:] + resting[:begin])[:PROBES]

    def draft(self, request: Request, most: int, price: Price | None) -> tuple[int, ...]:
        """At most `most` draft tokens of one candidate. Without a price (mode "on") as many as are found."""
        stream = self._streams[request.request_id]
        if price is None:
            return stream.lookup.draft(request.known, min(most, MOST))
        active = request.request_id in self._active
        length = price.length(self._chance(stream), request.computed, 1.0 if active else RETURN_MARGIN)
        if active and length == 0:
            self._active.discard(request.request_id)
        wanted = length if active else length or PROBE
        found = stream.lookup.draft(request.known, min(most, wanted))
        self._looked(request.request_id, stream, bool(found), pays=length > 0)
        return found

    def settle(self, request_id: str, drafted: int, accepted: int) -> None:
        """So many of a request's draft tokens were accepted."""
        self.drafted += drafted
        self.accepted += accepted
        self._engine.add(drafted, accepted, 1.0 - (1.0 - KEEP) / 10)
        self._yield += (accepted - self._yield) / 50
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.counts.add(drafted, accepted, KEEP)

    def _chance(self, stream: _Stream) -> float:
        """α: the request's own, as far as it has been tested."""
        trust = PRIOR * self._engine.accepted / self._engine.tested
        return (stream.counts.accepted + trust) / (stream.counts.tested + PRIOR)

    def _looked(self, request_id: str, stream: _Stream, found: bool, pays: bool) -> None:
        """Moves a request between drafting and rest by what a look gave."""
        stream.misses = 0 if found else stream.misses + 1
        if found and pays:
            self._active.add(request_id)
        elif not found:
            self._yield -= self._yield / 50
            if stream.misses >= MISSES:
                self._active.discard(request_id)

    def probes(self, step: int) -> bool:
        """Whether this step looks for requests that rest."""
        return self.mode == "auto" and step % PERIOD == PERIOD // 2
