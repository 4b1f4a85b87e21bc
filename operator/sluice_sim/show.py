"""A run as a table and sentences for people."""

from collections.abc import Iterator

from rich.table import Table

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.fleet import Run
from sluice_sim.result import Percentiles, Summary


def table(summary: Summary, spec: LLMDeploymentSpec, caption: str) -> Table:
    """The figures, each beside what was promised."""
    slo, scaling = spec.slo, spec.scaling
    shown = Table("", "result", "asked for", title="Simulated", caption=caption, title_justify="left")
    shown.add_row("requests", f"{summary.requests} in {summary.seconds:.0f} s", "")
    shown.add_row("refused", f"{summary.refused}", "")
    shown.add_row("SLO attainment", f"{summary.attainment:.2%}", f"{slo.attainment_percent} %")
    shown.add_row("TTFT p50 / p95 / p99", _times(summary.ttft), f"{slo.ttft_milliseconds} ms")
    shown.add_row("ITL p50 / p95 / p99", _times(summary.itl), f"{slo.itl_milliseconds} ms")
    shown.add_row(
        "replicas min / mean / max",
        f"{summary.replicas_min} / {summary.replicas_mean:.2f} / {summary.replicas_max}",
        f"{scaling.min_replicas} – {scaling.max_replicas} ({scaling.mode})",
    )
    shown.add_row("replica-hours", f"{summary.replica_hours:.3f}", "")
    limits = "–" if summary.limit_min is None else f"{summary.limit_min} – {summary.limit_max}"
    concurrency = spec.admission.concurrency
    shown.add_row("concurrency limit", limits, f"{concurrency.min} – {concurrency.max} ({spec.admission.mode})")
    return shown


def decisions(run: Run) -> Iterator[str]:
    """One line per decision: when, and its sentence."""
    for said in run.said:
        yield f"{said.at:8.0f} s  {said.reason.sentence}"


def _times(values: Percentiles) -> str:
    """Milliseconds. ITL is each request's mean, as the SLO counts it."""
    shown = ("–" if value is None else f"{value * 1000:.0f}" for value in (values.p50, values.p95, values.p99))
    return " / ".join(shown) + " ms"
