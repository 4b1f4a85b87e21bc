"""The bars of the comparison for each kind of processor, and the rows of the table."""

from collections.abc import Mapping, Sequence

from tests.bench.report.row import Row, at_least
from tests.bench.throughput.compare import Outcome
from tests.bench.throughput.tokens import Agreement

# Sluice's tokens/s over a side's; a side without a bar is only recorded. First for processors with bfloat16
# instructions, then for those without.
LOAD_64: tuple[Mapping[str, float], Mapping[str, float]] = (
    {"vllm": 1.3, "vllm-cores": 1.3, "static": 4.0, "continuous": 4.0},
    {"static": 3.0, "continuous": 2.5},
)
SPREAD_192: tuple[Mapping[str, float], Mapping[str, float]] = ({"static": 8.0}, {"static": 6.0})


def rows(outcomes: Sequence[Outcome], bars: Mapping[str, float]) -> list[Row]:
    """A row for each side's speed, and one for each ratio that has a bar."""
    found = [_speed(outcome) for outcome in outcomes]
    speeds = {outcome.side.name: outcome.tokens_per_second for outcome in outcomes}
    for outcome in outcomes:
        least = bars.get(outcome.side.name)
        if least is not None and "ours" in speeds:
            found.append(at_least(f"Sluice / {outcome.side.title}", ratio(speeds, outcome.side.name), least, " ×"))
    return found


def ratio(speeds: Mapping[str, float | None], peer: str) -> float | None:
    """Sluice's tokens per second over a peer's; None if either has none."""
    ours, theirs = speeds["ours"], speeds[peer]
    return ours / theirs if ours is not None and theirs is not None else None


def agreement(found: Agreement, dtype: str) -> Row:
    """Sluice's tokens compared with plain transformers."""
    return Row(
        f"our tokens against transformers, {dtype}",
        f"{found.share:.2%} of {found.tokens:,} the same, else ≤ {found.worst:.1e} apart",
        f"≤ {found.allowed:.1e} apart",
        found.holds,
    )


def _speed(outcome: Outcome) -> Row:
    speed = outcome.tokens_per_second
    if speed is None:
        return Row(outcome.side.title, failed=outcome.failed or "nothing was measured")
    how = "parts of one run" if outcome.split else "rounds"
    rates, computed = ", ".join(f"{r:,.0f}" for r in outcome.rates), outcome.about.get("computed")
    return Row(outcome.side.title, f"{speed:,.0f} tokens/s ({how}: {rates})" + (f"; {computed}" if computed else ""))
