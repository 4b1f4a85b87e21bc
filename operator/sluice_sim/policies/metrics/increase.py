"""Increases of counters and histograms over a moving window: Prometheus's increase() and rate(), summed over the pods.

A counter that decreased indicates a restart of its engine, and its present value is the increase since then (Prometheus
documentation, "Query functions", increase). Unlike Prometheus, there is no extrapolation to the edges of the window.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluice_operator.autoscaler.signals.histograms import BOUNDS, quantile
from sluice_operator.autoscaler.values import EngineSample
from sluice_sim.policies.metrics.samples import Seen

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
_PIECES: Final = 120  # maximum pieces per window, about: bounds the memory if calls come every second


@dataclass(frozen=True, slots=True)
class Piece:
    """The increases of all pods between two calls. `at`: end of the interval (s); `seconds`: its length."""

    at: float
    seconds: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Each pod's totals (scrape time, values) at its newest scrape, and the increases over the window."""

    at: float | None = None
    pods: Mapping[str, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Growth:
    """The sums over a window. `seconds` is the observed part of the window."""

    seconds: float = 0.0
    values: tuple[float, ...] = (0.0,) * (_ITL + len(BOUNDS))

    def count(self, name: str) -> float:
        """The increase of a counter of `COUNTERS`. Raises ValueError for another name."""
        return self.values[COUNTERS.index(name)]

    def rate(self, name: str) -> float:
        """The increase of a counter per second."""
        return self.count(name) / self.seconds if self.seconds > 0 else 0.0

    @property
    def accepted(self) -> float:
        """A lower bound of the requests that engines accepted: the larger of two.

        Arrivals less rejections is low since a replica that rejects a request offered again counts no arrival of it.
        The count of first tokens is low since waiting requests have none yet."""
        return max(self.count("arrived_total") - self.count("rejected_total"), self.values[_ITL - 1])

    def ttft(self, share: float) -> float | None:
        """The quantile `share` (0..1) of the window's TTFT, in seconds; None without observations."""
        return quantile(self.values[_TTFT:_ITL], share)

    def itl(self, share: float) -> float | None:
        """The quantile `share` (0..1) of the window's inter-token times, in seconds; None without observations."""
        return quantile(self.values[_ITL:], share)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The arrival rate and the mean request of a window."""

    rate: float  # requests per second, including rejected requests
    prompt: float  # tokens
    output: float  # tokens
    hit: float  # share of the prompt's tokens found in the cache, 0..1


def absorb(ledger: Ledger, seen: Seen, now: float, window: float) -> Ledger:
    """Add the increases of the scraped pods since their previous scrape. Keeps pieces of the last `window` seconds."""
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
    """The sums over the last `seconds`."""
    pieces = [piece for piece in ledger.pieces if now - seconds < piece.at <= now]
    if not pieces:
        return Growth()
    return Growth(math.fsum(piece.seconds for piece in pieces), _sum([piece.values for piece in pieces]))


def traffic(growth: Growth) -> Traffic | None:
    """The window's arrival rate and mean request; None if no request was accepted or finished in the window."""
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
