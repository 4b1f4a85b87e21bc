"""`python -m sluice_sim.benchmark.run.rekey` keeps stored pieces valid when code is moved without changing any figure.

    python -m sluice_sim.benchmark.run.rekey codes > before.json        # before the move
    python -m sluice_sim.benchmark.run.rekey apply before.json          # after it

A re-keyed piece keeps the digest of the code that measured it, so every table marks it. This module does not check that
the change altered no figure: measure some of the pieces again into another folder and compare.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from sluice_sim.benchmark.run.job import CLAIRVOYANT, STATIC
from sluice_sim.benchmark.run.provenance import code_digest
from sluice_sim.benchmark.run.store import RESULTS, code_of_key
from sluice_sim.cluster.scenario import MODES
from sluice_sim.policies.registry import LAWS

STORES = (RESULTS / "pieces.jsonl", RESULTS / "agreement.jsonl")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Ambiguous(ValueError):
    """One old digest maps to several new ones: laws that shared their code have become different."""


def codes_now() -> dict[str, str]:
    """The digest of the code behind each law in each mode, by "law mode"."""
    return {f"{law} {mode}": code_digest(law, mode) for law in (*LAWS, STATIC, CLAIRVOYANT) for mode in MODES}


def translation(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Old digest → new digest, without laws that no longer exist. Raises Ambiguous."""
    found: dict[str, str] = {}
    for name in before.keys() & now.keys():
        if found.setdefault(before[name], now[name]) != now[name]:
            raise Ambiguous(
                f"the code of {name!r} was {before[name]}, which is now both {now[name]} and {found[before[name]]}"
            )
    return found


def rekeyed(line: str, digests: Mapping[str, str]) -> str:
    """The line with its piece valid for the current code; a piece of any other code is unchanged."""
    value = json.loads(line)
    code = code_of_key(value["key"])
    if digests.get(code, code) == code:
        return line
    value["key"] = f"{value['key'].partition('-')[0]}-{digests[code]}"
    return json.dumps(value)


@app.command()
def codes() -> None:
    """Print the digests of this checkout's code."""
    sys.stdout.write(json.dumps(codes_now(), indent=1) + "\n")


@app.command()
def apply(
    before: Annotated[Path, typer.Argument(help="What `codes` printed before the move.")],
    stores: Annotated[list[Path] | None, typer.Option("--store", help="Files to re-key; the committed ones.")] = None,
) -> None:
    """Make the pieces of the previous code valid for the current code."""
    digests = translation(json.loads(before.read_text(encoding="utf-8")), codes_now())
    for path in stores or STORES:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [rekeyed(line, digests) for line in lines]
        written = path.with_suffix(".new")  # an interruption leaves either the old or the new file
        written.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        written.replace(path)
        changed = sum(one != line for one, line in zip(found, lines, strict=True))
        sys.stdout.write(f"{path}: {changed} of {len(lines)} pieces re-keyed\n")


if __name__ == "__main__":
    app()
