"""`python -m sluice_sim.benchmark` measures the score, prints it and writes it. Stored pieces are not re-measured."""

import json
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sluice_sim.benchmark.report.acceptance import acceptance_criteria
from sluice_sim.benchmark.report.plots import draw
from sluice_sim.benchmark.report.table import TrackScore, as_json, laws_table, overload_table
from sluice_sim.benchmark.run.bench import BenchmarkScope, measure_tracks
from sluice_sim.benchmark.run.effort import FULL, SHORT
from sluice_sim.benchmark.run.plan import Unreachable
from sluice_sim.benchmark.run.provenance import MARK, footnote
from sluice_sim.benchmark.run.runner import Runner
from sluice_sim.benchmark.run.store import RESULTS, Store
from sluice_sim.benchmark.track import NAMES
from sluice_sim.policies.registry import LAWS, UnknownLaw, named

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Measure whole windows and every variant. Takes hours; an interrupted run resumes."
        ),
    ] = False,
    tracks: Annotated[str, typer.Option(help="Tracks to measure, separated by commas.")] = ",".join(NAMES),
    laws: Annotated[
        str, typer.Option(help="Laws to measure, separated by commas; families as in sluice simulate.")
    ] = ",".join(LAWS),
    robust: Annotated[bool, typer.Option(help="Also measure the variants of the robustness score.")] = True,
    as_stored: Annotated[
        bool, typer.Option(help="Use stored pieces of other code, marked, instead of measuring them again.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0 measures in this process.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder of the table, the JSON, the plots and the store.")] = RESULTS,
) -> None:
    """Measure the score of all laws on all tracks."""
    progress = Console(stderr=True)
    effort = FULL if full else SHORT
    scope = BenchmarkScope(tracks=_tracks(tracks), laws=_laws(laws), effort=effort, robust=robust)
    began = time.monotonic()
    folder = out if full else out / "short"
    runner = Runner(
        Store(folder / "pieces.jsonl", any_code=as_stored),
        workers,
        lambda text: progress.print(f"{time.monotonic() - began:6.0f} s  {text}", highlight=False, soft_wrap=True),
    )
    try:
        scores = measure_tracks(scope, runner)
    except Unreachable as error:
        progress.print(str(error), highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    found = acceptance_criteria(scores)
    kept = Console(width=150, record=True, file=StringIO())
    for console in (Console(width=150), kept):
        _print(console, scores, found, effort.omissions)
    command = _command(scope) + (" --as-stored" if as_stored else "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.txt").write_text(f"{command}\n\n{kept.export_text()}", encoding="utf-8")
    value = as_json(scores, command) | {"bars": found}
    (folder / "score.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    draw(scores, folder)
    if _is_all(scope) and not as_stored:  # a partial run does not use all pieces, so it must not delete the others
        runner.store.keep(runner.used)
    progress.print(
        f"{runner.measured} pieces measured in {time.monotonic() - began:.0f} s ({runner.cpu_seconds:.0f} s of processor "
        f"time in single runs), {len(runner.used)} used; written to {folder}", highlight=False, soft_wrap=True
    )  # fmt: skip
    if not all(found.values()):
        raise typer.Exit(1)


def _tracks(text: str) -> tuple[str, ...]:
    """The tracks of --tracks. Raises typer.BadParameter."""
    wanted = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise typer.BadParameter(
            f"no track is called {unknown[0]}; there are {', '.join(NAMES)}", param_hint="--tracks"
        )
    return wanted


def _laws(text: str) -> tuple[str, ...]:
    """The laws of --laws. Raises typer.BadParameter."""
    try:
        return named(name.strip() for name in text.split(",") if name.strip())
    except UnknownLaw as error:
        raise typer.BadParameter(str(error), param_hint="--laws") from error


def _print(console: Console, scores: Sequence[TrackScore], found: Mapping[str, bool], omissions: str) -> None:
    """The tables of all tracks, which bars are met, and what was measured by other code or left out."""
    marked = {score.track.name for score in scores if score.other_code}
    for score in scores:
        if score.laws:
            console.print(laws_table(score))
        if score.overload:
            console.print(overload_table(score))
    for sentence, reached in found.items():
        verdict = ("met" if reached else "MISSED") + (MARK if sentence.partition(":")[0] in marked else "")
        console.print(f"{verdict:<7} {sentence}", highlight=False)
    for line in footnote(code for score in scores for codes in score.other_code.values() for code in codes):
        console.print(line, highlight=False)
    if omissions:
        console.print(f"\n{omissions}", highlight=False)


def _is_all(scope: BenchmarkScope) -> bool:
    return (scope.tracks, scope.laws, scope.robust) == (NAMES, tuple(LAWS), True)


def _command(scope: BenchmarkScope) -> str:
    """The command that reproduces these figures."""
    full = scope.effort is FULL
    if _is_all(scope):
        return "make bench-control FULL=1" if full else "make bench-control"
    words = ["python -m sluice_sim.benchmark", *(["--full"] if full else []), f"--tracks {','.join(scope.tracks)}"]
    if scope.laws != tuple(LAWS):
        words.append(f"--laws {','.join(scope.laws)}")
    if not scope.robust:
        words.append("--no-robust")
    return " ".join(words)


if __name__ == "__main__":
    app()
