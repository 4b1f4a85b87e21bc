"""The score as a table for people and as JSON for programs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from sluice_sim.benchmark.run.plan import LawScore, attained_at
from sluice_sim.benchmark.run.provenance import MARK, footnote
from sluice_sim.benchmark.search.clairvoyant import Clairvoyant, TaskResult
from sluice_sim.benchmark.track import Track

OWN = ("sluice", "replicas-only", "admission-only")


@dataclass(slots=True)
class TrackScore:
    """All results of one track. `static` is the static peak as (replicas, Found)."""

    track: Track
    clairvoyant: Clairvoyant | None = None
    static: tuple[int, TaskResult] | None = None
    laws: list[LawScore] = field(default_factory=list)
    overload: dict[str, TaskResult] = field(default_factory=dict)
    robust: dict[str, dict[str, float | None]] = field(default_factory=dict)  # law → variant → R99
    variant_attainment: dict[str, float] = field(default_factory=dict)  # variant → attainment of its own clairvoyant
    exact: dict[str, TaskResult] = field(default_factory=dict)
    hit_bound: float | None = None
    other_code: dict[str, set[str]] = field(default_factory=dict)  # name of a result → digests of other code behind it

    def note_other_code(self, name: str, codes: Iterable[str]) -> None:
        """Record which other code measured pieces of a law, of "clairvoyant", of "static" or of "variants"."""
        if found := set(codes):
            self.other_code.setdefault(name, set()).update(found)

    def marked(self, name: str, words: str | None = None) -> str:
        """The label, by default the name, with a mark if other code measured any piece of the result."""
        return f"{words or name}{MARK if name in self.other_code else ''}"

    def footnote(self) -> list[str]:
        """The explanation of the mark; empty if nothing is marked."""
        return list(footnote(code for codes in self.other_code.values() for code in codes))


def ratio(gpu_hours: float | None, score: TrackScore) -> float | None:
    """R99; None if the law never reaches the target or if the clairvoyant was not searched."""
    if gpu_hours is None or score.clairvoyant is None:
        return None
    return gpu_hours / score.clairvoyant.gpu_hours


def failed(score: TrackScore, gpu_hours: float | None) -> bool:
    """True if a law costs more than twice the static peak or never reaches the target."""
    return gpu_hours is None or (score.static is not None and gpu_hours > 2.0 * score.static[1]["gpu_hours"])


def laws_table(score: TrackScore) -> Table:
    """A table with one row per law, ordered by GPU-hours at 99 %, cheapest first."""
    known = score.clairvoyant
    title = f"{score.track.name}: {score.track.words}; TTFT {score.track.ttft:g} s, ITL {score.track.itl * 1000:g} ms"
    shown = Table(title=title, title_justify="left", caption_justify="left", caption=_caption(score))
    shown.add_column("law")
    for heading in (
        "R99",
        "R99 untuned",
        "A untuned",
        "A tuned",
        "worst 5 min",
        "A at 1.10",
        "G/static",
        "acts/h",
        "reversals/h",
        "hits",
    ):
        shown.add_column(heading, justify="right")
    shown.add_column("knob")
    for one in sorted(score.laws, key=lambda law: (failed(score, law.gpu_hours), law.gpu_hours or 0.0)):
        found = one.tuned.result
        at = None if known is None else attained_at(one.curve, 1.10 * known.gpu_hours)
        shown.add_row(
            score.marked(one.law),
            "fails" if failed(score, one.gpu_hours) else _number(ratio(one.gpu_hours, score)),
            "fails" if failed(score, one.default_gpu_hours) else _number(ratio(one.default_gpu_hours, score)),
            _percent(one.default["attainment"]),
            _percent(found["attainment"]),
            _percent(found["worst"]),
            _percent(at),
            _number(None if score.static is None else found["gpu_hours"] / score.static[1]["gpu_hours"]),
            f"{found['actions']:.0f}",
            f"{found['flips']:.1f}",
            _percent(found["hit_ratio"]) if found["hit_ratio"] else "–",
            f"{one.tuned.setting:.3g}",
        )
    return shown


def overload_table(score: TrackScore) -> Table:
    """A table of the overload track's goodput, priority and fairness figures per law."""
    note = "\n".join(score.footnote()) or None
    title = f"{score.track.name}: {score.track.words}"
    shown = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    shown.add_column("law")
    headings = ("of the bound", "good", "high priority", "low", "fairness gap / bound", "GPU-hours")
    for heading in headings:
        shown.add_column(heading, justify="right")
    for law, found in sorted(score.overload.items(), key=lambda item: -item[1]["extra"]["of_bound"]):
        extra = found["extra"]
        shown.add_row(
            score.marked(law),
            _percent(extra["of_bound"]),
            _percent(found["attainment"]),
            _percent(extra["high_good"]),
            _percent(extra["low_good"]),
            f"{extra['fairness_gap'] / extra['fairness_bound']:.3f}",
            f"{found['gpu_hours']:.2f}",
        )
    return shown


def as_json(scores: Sequence[TrackScore], command: str) -> dict[str, Any]:
    """All figures except the time series."""
    return {"command": command, "tracks": {score.track.name: _board(score) for score in scores}}


def _board(score: TrackScore) -> dict[str, Any]:
    known = score.clairvoyant
    return {
        "words": score.track.words,
        "hardware": score.track.hardware,
        "clairvoyant": None if known is None else {
            "counts": list(known.counts),
            "attainment": known.result["attainment"],
            "gpu_hours": known.gpu_hours,
            "work_bound_gpu_hours": known.bound,
            "over_work_bound": known.gpu_hours / known.bound,
        },
        "static_peak": None if score.static is None else {"replicas": score.static[0], "gpu_hours": score.static[1]["gpu_hours"]},
        "laws": {one.law: _law(score, one) for one in score.laws},
        "overload": {law: _plain(found) for law, found in score.overload.items()},
        "robustness_r99": score.robust,
        "exact": {law: _plain(found) for law, found in score.exact.items()},
        "endless_cache_hit_ratio": score.hit_bound,
        "measured_by_other_code": {name: sorted(codes) for name, codes in score.other_code.items()},
    }  # fmt: skip


def _law(score: TrackScore, one: LawScore) -> dict[str, Any]:
    return {
        "r99": ratio(one.gpu_hours, score),
        "r99_untuned": ratio(one.default_gpu_hours, score),
        "failed": failed(score, one.gpu_hours),
        "setting": one.tuned.setting,
        "untuned": _plain(one.default),
        "tuned": _plain(one.tuned.result),
        "test": [[tried.setting, tried.attainment, tried.gpu_hours] for tried in one.curve],
        "train": [[tried.setting, tried.attainment, tried.gpu_hours] for tried in one.train],
    }


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in ("series", "cpu_seconds")}


def _caption(score: TrackScore) -> str:
    known, words = score.clairvoyant, [f"{score.track.mode} steps; {score.track.hardware}"]
    if known is not None:
        words.append(
            f"{score.marked('clairvoyant')} {known.gpu_hours:.2f} GPU-hours at {known.result['attainment']:.2%}, "
            f"{known.gpu_hours / known.bound:.2f} of the work bound"
        )
    if score.static is not None:
        words.append(
            f"{score.marked('static', 'static peak')} {score.static[0]} replicas, {score.static[1]['gpu_hours']:.2f} GPU-hours"
        )
    if score.hit_bound is not None:
        words.append(f"an endless cache would hit {score.hit_bound:.1%}")
    return "\n".join(["; ".join(words), *score.footnote()])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
