"""Aggregates the results of a load into a report."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from sluice.bench.load import Load
from sluice.bench.result import Result


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles in milliseconds; None without samples."""

    p50: float | None
    p95: float | None
    p99: float | None


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Nearest-rank percentiles of times in seconds, as milliseconds."""
    if not seconds:
        return Percentiles(None, None, None)
    ordered = sorted(seconds)
    ranks = (max(math.ceil(share * len(ordered)), 1) - 1 for share in (0.50, 0.95, 0.99))
    return Percentiles(*(round(ordered[rank] * 1000, 3) for rank in ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Aggregate figures of a load.

    Latencies are those of successful requests; `itl` covers the gaps of all of these.
    """

    url: str
    model: str
    rate: float | None
    concurrency: int | None
    requests: int  # finished
    unfinished: int  # in flight when the load was interrupted; in no other figure
    failed: int
    failures: dict[str, int]  # kind → count
    first_failures: tuple[str, ...]  # messages of the first five failures
    refused_then_healed: int  # succeeded after a 429 or 503
    broken_then_healed: int  # succeeded after a broken connection or another status
    retries: int
    input_tokens: int
    output_tokens: int
    seconds: float
    tokens_per_second: float  # output tokens
    requests_per_second: float
    ttft_ms: Percentiles
    itl_ms: Percentiles
    ttft_target_ms: float | None
    itl_target_ms: float | None
    slo_met_ratio: float | None  # share of all requests; None without a target

    @property
    def ok(self) -> bool:
        """True if every request succeeded."""
        return self.failed == 0

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """Running totals without the output texts, so that a long load needs little memory."""

    load: Load
    sent: int = 0
    requests: int = 0  # finished
    met: int = 0
    refused_then_healed: int = 0
    broken_then_healed: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    first_failures: list[str] = field(default_factory=list)
    ttfts: "array[float]" = field(default_factory=lambda: array("d"))
    gaps: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, result: Result) -> None:
        """Add one result."""
        self.requests += 1
        self.retries += result.attempts - 1
        self.input_tokens += result.input_tokens
        self.output_tokens += result.output_tokens
        self.met += result.met(self.load.ttft_target, self.load.itl_target)
        if result.failure is not None:
            self.failures[result.failure] += 1
            if len(self.first_failures) < 5:
                self.first_failures.append(f"request {result.index}: {result.failure}: {result.message}")
            return
        if result.attempts > 1:
            self.refused_then_healed += result.refusals > 0
            self.broken_then_healed += result.refusals == 0
        if result.ttft is not None:
            self.ttfts.append(result.ttft)
        self.gaps.extend(result.gaps)

    def report(self, model: str, seconds: float) -> Report:
        """The report after `seconds` of load."""
        load = self.load
        aimed = load.ttft_target is not None or load.itl_target is not None
        return Report(
            url=load.base_url,
            model=model,
            rate=load.rate,
            concurrency=load.concurrency,
            requests=self.requests,
            unfinished=self.sent - self.requests,
            failed=self.failures.total(),
            failures=dict(self.failures),
            first_failures=tuple(self.first_failures),
            refused_then_healed=self.refused_then_healed,
            broken_then_healed=self.broken_then_healed,
            retries=self.retries,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            seconds=round(seconds, 3),
            tokens_per_second=round(self.output_tokens / seconds, 2) if seconds else 0.0,
            requests_per_second=round(self.requests / seconds, 3) if seconds else 0.0,
            ttft_ms=percentiles(self.ttfts),
            itl_ms=percentiles(self.gaps),
            ttft_target_ms=None if load.ttft_target is None else load.ttft_target * 1000,
            itl_target_ms=None if load.itl_target is None else load.itl_target * 1000,
            slo_met_ratio=round(self.met / self.requests, 4) if aimed and self.requests else None,
        )
