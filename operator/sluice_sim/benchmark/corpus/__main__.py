"""`python -m sluice_sim.benchmark.corpus` measures the corpus, prints its table and writes it. It resumes."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sluice_sim.benchmark.corpus.ablation import Loss, ablation_plan, ablation_table, sensitivity_table
from sluice_sim.benchmark.corpus.bound import bound_plan, bound_text
from sluice_sim.benchmark.corpus.laws import OWN, PEERS
from sluice_sim.benchmark.corpus.load import Load, read_loads
from sluice_sim.benchmark.corpus.plan import LoadResult, Scope, load_plan
from sluice_sim.benchmark.corpus.report.bars import verdicts
from sluice_sim.benchmark.corpus.report.picture import draw_corpus, draw_load
from sluice_sim.benchmark.corpus.report.table import WIDTH
from sluice_sim.benchmark.corpus.report.text import as_json, report
from sluice_sim.benchmark.corpus.store import RESULTS, CorpusStore
from sluice_sim.benchmark.corpus.tasks import CORPUS
from sluice_sim.benchmark.corpus.variants import CONSTANTS, RULES, VARIANTS
from sluice_sim.benchmark.run.runner import Runner

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    loads: Annotated[str, typer.Option(help="Loads to measure, separated by commas; all by default.")] = "",
    families: Annotated[str, typer.Option(help="Families to measure, separated by commas; all by default.")] = "",
    laws: Annotated[str, typer.Option(help="Peers to run, separated by commas; 'none' for Sluice alone.")] = ",".join(
        PEERS
    ),
    own: Annotated[str, typer.Option(help="Sluice, or one of its variants.")] = OWN,
    constants: Annotated[bool, typer.Option(help="Also run constant fleets.")] = True,
    hindsight: Annotated[bool, typer.Option(help="Also search the schedules that know the load.")] = True,
    ours_only: Annotated[
        bool, typer.Option("--ours-only", help="Measure Sluice with this code; use all else as stored, whatever code.")
    ] = False,
    variants: Annotated[
        str,
        typer.Option(
            help="Only compare Sluice with these variants, separated by commas, or with 'rules', 'constants' or 'all'."
        ),
    ] = "",
    bound: Annotated[
        bool, typer.Option("--bound", help="Only compare Sluice with schedules that know the load and begin late.")
    ] = False,
    plot: Annotated[str, typer.Option(help="Only draw these loads under Sluice, separated by commas.")] = "",
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0 measures in this process.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder of the tables, the pictures and the store.")] = RESULTS,
) -> None:
    """Measure the corpus: Sluice at its defaults beside its peers, constant fleets and schedules that know the load."""
    if plot:
        for load in _chosen(plot, ""):
            draw_load(load, own, out / f"{load.name}.png")
        return
    chosen = _chosen(loads, families)
    compared = _variants(variants)
    scope = Scope(own=own, peers=_peers(laws), with_constants=constants, with_hindsight=hindsight)
    progress, began = Console(stderr=True), time.monotonic()
    runner = Runner(
        CorpusStore(out / "pieces.jsonl", any_code=ours_only),
        workers,
        lambda text: progress.print(f"{time.monotonic() - began:6.0f} s  {text}", highlight=False, soft_wrap=True),
        CORPUS,
    )
    if compared:
        losses = runner.run([ablation_plan(chosen, own, name) for name in compared])
        _write_variants(dict(zip(compared, losses, strict=True)), out)
        return
    if bound:
        found = [one for one in runner.run([bound_plan(load, own) for load in chosen]) if one is not None]
        _write_text(f"{_command()}\n\n{bound_text(found)}", out / "bound.txt")
        return
    results: list[LoadResult] = runner.run([load_plan(load, scope) for load in chosen])
    whole = scope == Scope() and len(chosen) == len(read_loads())
    _write(results, _command(), out)
    if whole and not ours_only:  # a partial run does not use all pieces, so it must not delete the others
        runner.store.keep(runner.used)
    progress.print(
        f"{runner.measured} pieces measured in {time.monotonic() - began:.0f} s ({runner.cpu_seconds:.0f} s of processor "
        f"time), {len(runner.used)} used; written to {out}", highlight=False, soft_wrap=True
    )  # fmt: skip
    if not all(verdict.met for verdict in verdicts(results)):
        raise typer.Exit(1)


def _write(results: Sequence[LoadResult], command: str, out: Path) -> None:
    """Print the report, and write it with its JSON and its picture."""
    _write_text(report(results, command), out / "table.txt")
    (out / "score.json").write_text(json.dumps(as_json(results, command), indent=1) + "\n", encoding="utf-8")
    draw_corpus(results, out / "corpus.png")


def _write_text(text: str, file: Path) -> None:
    """Print the text and write it."""
    Console(soft_wrap=True).print(text, highlight=False, markup=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _write_variants(found: Mapping[str, Sequence[Loss]], out: Path) -> None:
    """Print the tables of the variants. Write the one of all rules, and the one of all constants."""
    for group, table, file in (
        (RULES, ablation_table, "ablation.txt"),
        (CONSTANTS, sensitivity_table, "sensitivity.txt"),
    ):
        mine = {name: losses for name, losses in found.items() if name in group}
        if not mine:
            continue
        console = Console(width=WIDTH, record=True)
        console.print(table(mine))
        if mine.keys() == group.keys():
            out.mkdir(parents=True, exist_ok=True)
            (out / file).write_text(f"{_command()}\n\n{console.export_text()}", encoding="utf-8")


def _command() -> str:
    """The command that reproduces these figures."""
    given = sys.argv[1:]
    return " ".join(["python -m sluice_sim.benchmark.corpus", *given]) if given else "make bench-corpus"


def _peers(laws: str) -> tuple[str, ...]:
    """The named peers. Raises BadParameter for an unknown one."""
    if laws == "none":
        return ()
    names = tuple(_names(laws))
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise typer.BadParameter(f"no peer is called {unknown[0]}; there are {', '.join(PEERS)}", param_hint="--laws")
    return names


def _chosen(loads: str, families: str) -> list[Load]:
    """The loads of the names and families, in the order of the table. Raises BadParameter for an unknown one."""
    known = read_loads()
    names, groups = set(_names(loads)), set(_names(families))
    of_groups = {load.family for load in known.values()}
    for unknown, all_known, hint in (
        (names - known.keys(), known, "--loads"),
        (groups - of_groups, of_groups, "--families"),
    ):
        if unknown:
            sentence = f"{min(unknown)!r} is unknown; there are {', '.join(all_known)}"
            raise typer.BadParameter(sentence, param_hint=hint)
    if not names and not groups:
        return list(known.values())
    return [load for load in known.values() if load.name in names or load.family in groups]


def _variants(text: str) -> tuple[str, ...]:
    """The named variants of Sluice. Raises BadParameter for an unknown one."""
    groups = {"rules": tuple(RULES), "constants": tuple(CONSTANTS), "all": tuple(VARIANTS)}
    names = groups.get(text) or tuple(_names(text))
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        sentence = f"no variant is called {unknown[0]}; there are {', '.join(VARIANTS)}"
        raise typer.BadParameter(sentence, param_hint="--variants")
    return names


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    app()
