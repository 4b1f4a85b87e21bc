"""A report as a table for people."""

from rich.markup import escape
from rich.table import Table

from sluice.bench.report import Percentiles, Report


def table(report: Report) -> Table:
    """A rich table of the main figures, with failures in red."""
    load = f"{report.rate:g} requests/s" if report.rate is not None else f"{report.concurrency} at a time"
    out = Table(title=escape(f"{report.model} at {report.url}, {load}"), show_header=False, title_style="bold")
    out.add_column(style="cyan")
    out.add_column(justify="right")
    out.add_row("requests", f"{report.requests}")
    out.add_row("failed", f"[red]{report.failed}[/]" if report.failed else "[green]0[/]")
    out.add_row("refused, then healed by a retry", f"{report.refused_then_healed}")
    out.add_row("broken, then healed by a retry", f"{report.broken_then_healed}")
    out.add_row("retries", f"{report.retries}")
    out.add_row("tokens in / out", f"{report.input_tokens} / {report.output_tokens}")
    out.add_row("tokens/s", f"{report.tokens_per_second:.1f}")
    out.add_row("requests/s", f"{report.requests_per_second:.2f}")
    out.add_row("TTFT p50 / p95 / p99", _times(report.ttft_ms))
    out.add_row("ITL p50 / p95 / p99", _times(report.itl_ms))
    if report.slo_met_ratio is not None:
        out.add_row("within the targets", f"{report.slo_met_ratio:.1%}")
    out.add_row("duration", f"{report.seconds:.1f} s")
    for failure in report.first_failures:
        out.add_row("[red]failure[/]", escape(failure))
    return out


def _times(values: Percentiles) -> str:
    return (
        " / ".join("-" if value is None else f"{value:.1f}" for value in (values.p50, values.p95, values.p99)) + " ms"
    )
