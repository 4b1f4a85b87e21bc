"""A report as text for a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sluice.bench.report import Percentiles, Report


def screen(report: Report) -> RenderableType:
    """The main figures, the latencies, and the first failures as sentences."""
    return Group(*_parts(report))


def _parts(report: Report) -> Iterator[RenderableType]:
    load = f"{report.rate:g} requests/s" if report.rate is not None else f"{report.concurrency} at a time"
    yield Text(f"{report.model} at {report.url}, {load}", style="bold")
    yield _figures(report)
    yield _latencies(report)
    if report.first_failures:
        yield Text("First failures:", style="red")
        yield from (Text(f"  {failure}", style="red") for failure in report.first_failures)


def _figures(report: Report) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True, min_width=9)
    table.add_column()
    dropped = f", {report.unfinished} in flight abandoned" if report.unfinished else ""
    each = f"{report.requests_per_second:.2f} requests/s"
    table.add_row("requests", f"{report.requests} in {report.seconds:.1f} s, {each}{dropped}")
    table.add_row("failed", Text(f"{report.failed}", style="red" if report.failed else "green"))
    healed = f"; {report.refused_then_healed} refused and {report.broken_then_healed} broken requests then succeeded"
    table.add_row("retries", f"{report.retries}{healed if report.retries else ''}")
    each = f"{report.tokens_per_second:.1f} tokens/s"
    table.add_row("tokens", f"{report.input_tokens} in, {report.output_tokens} out, {each}")
    if report.slo_met_ratio is not None:
        table.add_row("in target", f"{report.slo_met_ratio:.1%} of the requests")
    return table


def _latencies(report: Report) -> Table:
    """Columns of one width whatever they hold, so that two reports can be compared line by line."""
    table = Table.grid(padding=(0, 2))
    for heading in ("", "p50", "p95", "p99", "target"):
        table.add_column(justify="right" if heading else "left", no_wrap=True, min_width=12 if heading else 9)
    table.add_row("", "p50", "p95", "p99", "target", style="cyan")
    table.add_row(Text("TTFT", style="cyan"), *_times(report.ttft_ms), _target(report.ttft_target_ms))
    table.add_row(Text("ITL", style="cyan"), *_times(report.itl_ms), _target(report.itl_target_ms))
    return table


def _times(values: Percentiles) -> tuple[str, str, str]:
    return _ms(values.p50), _ms(values.p95), _ms(values.p99)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} ms"


def _target(value: float | None) -> str:
    return "–" if value is None else f"{value:g} ms"
