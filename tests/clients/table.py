"""The table client × feature as Markdown, and its JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from tests.clients.catalogue import CLIENTS, FEATURES, HERE
from tests.clients.outcomes import Outcome, Result

STORED: Final = HERE / "results.json"
TABLE: Final = HERE / "RESULTS.md"
HEAD: Final = """# Clients, unchanged, against the engine

Written by `make clients`. ✓ works; ✗ does not, and the fault is ours; – the client has no such feature (the reasons are
below); an empty cell was not tried with this client. README.md says what is served and how a case is judged.
"""


def write(new: Iterable[Result]) -> None:
    """Merges the results into the stored ones and writes both files."""
    stored = {result.client: result for result in load()} | {result.client: result for result in new}
    results = [stored[client.name] for client in CLIENTS if client.name in stored]
    STORED.write_text(json.dumps([result.as_json() for result in results], indent=1, ensure_ascii=False) + "\n")
    TABLE.write_text(markdown(results))


def load() -> list[Result]:
    """Returns the stored results."""
    return [Result.of_json(data) for data in json.loads(STORED.read_text())] if STORED.exists() else []


def markdown(results: Sequence[Result]) -> str:
    """Returns the tables: one per family, the versions, and the reasons for each dash."""
    parts = [HEAD]
    for family in dict.fromkeys(client.family for client in CLIENTS):
        names = [client.name for client in CLIENTS if client.family == family]
        if shown := [result for result in results if result.client in names]:
            parts += [f"## {family}\n", _grid(shown)]
    versions = [f"| {each.client} | {each.version} | `{each.code[:10]}` ({each.commit}) |" for each in results]
    parts += [
        "## Versions\n",
        "\n".join(["| Client | Version | Engine's code (commit) |", "|---|---|---|", *versions, ""]),
    ]
    transcripts = [
        f"{each.client} {each.version}:\n\n```json\n{one.detail}\n```\n"
        for each in results
        for one in each.outcomes
        if one.feature == "agent" and one.ok and one.detail.startswith("{")
    ]
    if transcripts:
        parts += ["## What an agent said and did, one line per item\n", *transcripts]
    dashes = [
        f"* {each.client}, {one.feature}: {one.detail}" for each in results for one in each.outcomes if one.ok is None
    ]
    return "\n".join([*parts, *(["## Why a cell has a dash\n", *dashes, ""] if dashes else [])])


def _grid(results: Sequence[Result]) -> str:
    marks = [{outcome.feature: outcome.mark for outcome in result.outcomes} for result in results]
    rows = [
        f"| {feature} | " + " | ".join(column.get(feature, "") for column in marks) + " |"
        for feature in FEATURES
        if any(feature in column for column in marks)
    ]
    head = "| | " + " | ".join(result.client for result in results) + " |"
    return "\n".join([head, "|---|" + ":-:|" * len(results), *rows, ""])


def faults(results: Iterable[Result]) -> list[tuple[str, Outcome]]:
    """Returns every feature that does not work, with its client."""
    return [(result.client, outcome) for result in results for outcome in result.failed]
