"""A run as a sentence, a table and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.cli.compare import Row
from sluice_sim.results.run import Run
from sluice_sim.results.summary import Percentiles, Summary


def sentence(summary: Summary, spec: LLMDeploymentSpec) -> str:
    """The answer in one sentence: how many GPUs, and whether the SLO is met."""
    each, slo = summary.gpus_per_replica, spec.slo
    holds = summary.attainment * 100.0 >= float(slo.attainment_percent)
    most = summary.replicas_max * each
    text = (
        f"{most} GPU{'s' if most != 1 else ''} at most, mean {summary.replicas_mean * each:.1f}; the SLO "
        f"(TTFT {slo.ttft_milliseconds} ms, ITL {slo.itl_milliseconds} ms) is met by {summary.attainment:.2%} of "
        f"{summary.requests} requests"
    )
    if holds:
        return f"{text} (target: {slo.attainment_percent} %)."
    text += f", below the target of {slo.attainment_percent} %"
    if summary.replicas_max >= spec.scaling.max_replicas and spec.scaling.mode == "Auto":
        return f"{text}: maxReplicas ({spec.scaling.max_replicas}) was reached."
    return f"{text}; in the worst 5 minutes for {summary.attainment_worst:.2%}."


def misses(summary: Summary, too_long: int) -> str | None:
    """How the requests that were not good ended, in one sentence whose counts add up; None if all were good.

    too_long: rejected prompts that no replica has room for.
    """
    lost = summary.requests - round(summary.attainment * summary.requests)
    if not lost:
        return None
    late = lost - summary.refused - summary.failed
    overload = summary.refused - too_long
    counts = (
        (too_long, "rejected as too long"),
        (overload, "rejected for overload"),
        (summary.failed, "lost with a replica"),
        (late, "late or unfinished"),
    )
    parts = ", ".join(f"{count} {how}" for count, how in counts if count)
    return f"{lost} of {summary.requests} requests were not good: {parts}."


def table(summary: Summary, spec: LLMDeploymentSpec) -> Table:
    """The figures, each beside its target in the spec."""
    slo, scaling = spec.slo, spec.scaling
    shown = Table("", "result", "target", title=f"Simulated ({summary.mode} steps)", title_justify="left")
    shown.add_row("requests", f"{summary.requests} in {summary.seconds:.0f} s", "")
    shown.add_row("rejected", f"{summary.refused}", "")
    if summary.pod_failures:
        shown.add_row("failed pods", f"{summary.pod_failures}, with {summary.failed} requests", "")
    shown.add_row("SLO attainment", f"{summary.attainment:.2%}", f"{slo.attainment_percent} %")
    shown.add_row("… in the worst 5 minutes", f"{summary.attainment_worst:.2%}", "")
    shown.add_row("TTFT p50 / p95 / p99", _times(summary.ttft), f"{slo.ttft_milliseconds} ms")
    shown.add_row("ITL p50 / p95 / p99", _times(summary.itl), f"{slo.itl_milliseconds} ms")
    shown.add_row(
        "replicas min / mean / max",
        f"{summary.replicas_min} / {summary.replicas_mean:.2f} / {summary.replicas_max}",
        f"{scaling.min_replicas} – {scaling.max_replicas} ({scaling.mode})",
    )
    shown.add_row("replica-hours", f"{summary.replica_hours:.3f}", "")
    shown.add_row("GPU-hours", f"{summary.gpu_hours:.3f}", f"{summary.gpus_per_replica} per replica")
    shown.add_row("scalings, reversals per hour", f"{summary.actions_per_hour:.1f}, {summary.flips_per_hour:.1f}", "")
    limits = "–" if summary.limit_min is None else f"{summary.limit_min} – {summary.limit_max}"
    concurrency = spec.admission.concurrency
    shown.add_row("concurrency limit", limits, f"{concurrency.min} – {concurrency.max} ({spec.admission.mode})")
    shown.add_row("KV cache held, most", f"{summary.kv_share_max:.0%}", f"{scaling.target_kv_occupancy_percent} %")
    if summary.hit_ratio > 0:
        shown.add_row("prompt tokens from the cache", f"{summary.hit_ratio:.1%}", "")
    return shown


def decisions(run: Run) -> Iterator[str]:
    """One line per decision: its time and its sentence."""
    for decision in run.decisions:
        yield f"{decision.at:8.0f} s  {decision.reason.sentence}"


def as_json(summary: Summary, run: Run, answer: str, notes: Sequence[str]) -> dict[str, Any]:
    """The whole result except the single requests, in JSON types."""
    return {
        "answer": answer,
        "summary": asdict(summary),
        "notes": list(notes),
        "replicas": run.desired,
        "limits": run.limits,
        "moments": [asdict(sample) for sample in run.fleet_samples],
        "decisions": [{"at": decision.at, **asdict(decision.reason)} for decision in run.decisions],
    }


def _times(values: Percentiles) -> str:
    """p50 / p95 / p99 in milliseconds. ITL is the mean per request, as in spec.slo."""
    shown = ("–" if value is None else f"{value * 1000:.0f}" for value in (values.p50, values.p95, values.p99))
    return " / ".join(shown) + " ms"


def compared_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The summary of each law, in JSON types."""
    return {row.law.name: asdict(row.summary) for row in rows}
