"""How counters and histograms grew over a moving window: Prometheus' increase() and rate(), summed over the pods.

A counter that fell says that its engine started again, and what it shows now is its growth since (Prometheus
documentation, "Query functions", increase). Unlike Prometheus nothing is extrapolated to the window's edges.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluice_operator.decide.histograms import BOUNDS, quantile
from sluice_operator.decide.values import EngineSample
from sluice_sim.laws.seen import Seen

COUNTERS: Final = (
    "arrived_total",
    "rejected_total",
    "finished_total",
    "prompt_tokens_total",
    "cached_prompt_tokens_total",
    "generated_tokens_total",
)
_TTFT: Final = len(COUNTERS)
_ITL: Final = _TTFT + len(BOUNDS)
_NOTHING: Final = (0.0,) * len(BOUNDS)
_PIECES: Final = 120  # of a window that are kept apart: bounds the memory where calls come every second


@dataclass(frozen=True, slots=True)
class Piece:
    """What all pods did between two calls."""

    at: float
    seconds: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Each pod's totals at its newest scrape, and the window's growth."""

    at: float | None = None
    pods: Mapping[str, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Growth:
    """A window's sums. Seconds is how much of the window has been watched."""

    seconds: float = 0.0
    values: tuple[float, ...] = (0.0,) * (_ITL + len(BOUNDS))

    def count(self, name: str) -> float:
        """How much a counter of `COUNTERS` grew."""
        return self.values[COUNTERS.index(name)]

    def rate(self, name: str) -> float:
        """The same per second."""
        return self.count(name) / self.seconds if self.seconds > 0 else 0.0

    @property
    def accepted(self) -> float:
        """Requests that engines took, at least: a second replica that refuses a request counts no second arrival of it,
        and whoever waits has no first token yet, so neither figure is too high and the larger one is nearer."""
        return max(self.count("arrived_total") - self.count("rejected_total"), self.values[_ITL - 1])

    def ttft(self, share: float) -> float | None:
        """The time to first token that `share` of the window's requests stay under; None without any."""
        return quantile(self.values[_TTFT:_ITL], share)

    def itl(self, share: float) -> float | None:
        """The same of the window's inter-token times."""
        return quantile(self.values[_ITL:], share)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The mean request of a window and how many came."""

    rate: float  # requests per second, refused ones included
    prompt: float  # tokens
    output: float  # tokens
    hit: float  # share of the prompt's tokens found in the cache, 0..1


def absorb(ledger: Ledger, seen: Seen, now: float, window: float) -> Ledger:
    """Add what the scraped pods did since their last scrape."""
    pods: dict[str, tuple[float, tuple[float, ...]]] = {}
    grown: list[tuple[float, ...]] = []
    for pod, sample in seen.scraped:
        at = now if pod.sample_at is None else pod.sample_at
        old = ledger.pods.get(pod.name)
        if old is not None and at <= old[0]:
            pods[pod.name] = old
            continue
        values = _values(sample)
        pods[pod.name] = (at, values)
        if old is not None:
            grown.append(_increase(old[1], values))
    if ledger.at is None:
        return Ledger(now, pods)
    piece = Piece(now, now - ledger.at, _sum(grown))
    pieces = tuple(one for one in ledger.pieces if now - window < one.at <= now)
    if pieces and now - pieces[-1].at + pieces[-1].seconds < window / _PIECES:
        last = pieces[-1]
        piece = Piece(now, piece.seconds + last.seconds, _sum([piece.values, last.values]))
        pieces = pieces[:-1]
    return Ledger(now, pods, (*pieces, piece))


def over(ledger: Ledger, now: float, seconds: float) -> Growth:
    """The sums of the last `seconds`."""
    pieces = [piece for piece in ledger.pieces if now - seconds < piece.at <= now]
    if not pieces:
        return Growth()
    return Growth(math.fsum(piece.seconds for piece in pieces), _sum([piece.values for piece in pieces]))


def traffic(growth: Growth) -> Traffic | None:
    """The window's mean request; None while none has come or ended in it."""
    accepted = growth.accepted
    finished = growth.count("finished_total")
    prompt, output = growth.count("prompt_tokens_total"), growth.count("generated_tokens_total")
    if min(accepted, finished, prompt, output) <= 0 or growth.seconds <= 0:
        return None
    return Traffic(
        rate=growth.rate("arrived_total"),
        prompt=prompt / accepted,
        output=max(1.0, output / finished),
        hit=min(1.0, growth.count("cached_prompt_tokens_total") / prompt),
    )


def _values(sample: EngineSample) -> tuple[float, ...]:
    counters = (float(getattr(sample, name)) for name in COUNTERS)
    return (*counters, *(sample.ttft.counts or _NOTHING), *(sample.itl.counts or _NOTHING))


def _increase(old: tuple[float, ...], new: tuple[float, ...]) -> tuple[float, ...]:
    if any(b < a for a, b in zip(old, new, strict=True)):
        return new
    return tuple(b - a for a, b in zip(old, new, strict=True))


def _sum(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    if not rows:
        return (0.0,) * (_ITL + len(BOUNDS))
    return tuple(map(math.fsum, zip(*rows, strict=True)))
