"""`sluice model list` and `sluice model info`: what is on this machine, and what it needs."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from sluice.commands.model.failures import reported
from sluice.commands.model.words import age_words, count_words, size_words

if TYPE_CHECKING:
    from sluice_engine.pulled import ModelFacts
    from sluice_engine.sources import CachedModel

KV_SHARE: Final = 0.9  # of the memory left beside the weights, as `sluice serve` takes by default
Output = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text or json.")]


def list_models(output: Output = "text") -> None:
    """The pulled models: name, size, age and source."""
    with reported():
        from sluice_engine.pulled import what_exists
        from sluice_engine.sources import cached_models, default_cache

        cache = default_cache()
        entries = [_entry(model) for model in cached_models(cache)]
        if output == "json":
            typer.echo(json.dumps(entries, indent=2))
            return
        if entries:
            _print_table(entries)
        else:
            typer.echo(what_exists(cache), err=True)


def info(
    model: Annotated[str, typer.Argument(help="A pulled model, or a model folder.")], output: Output = "text"
) -> None:
    """A model's shape, source, licence, and how much KV cache this machine has for it."""
    with reported():
        from pathlib import Path

        from sluice_engine.pulled import find_pulled, read_facts
        from sluice_engine.sources import default_cache

        folder = Path(model).expanduser()
        entry: dict[str, Any] = {"name": model, "folder": str(folder)}
        if not folder.is_dir():
            found = find_pulled(model, default_cache())[-1]
            folder, entry = found.folder, _entry(found)
        facts = read_facts(folder)
        entry |= _facts(facts)
        if output == "json":
            typer.echo(json.dumps(entry, indent=2))
            return
        rows = _rows(entry)
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            typer.echo(f"{name:<{width}}  {value}")


def _entry(model: "CachedModel") -> dict[str, Any]:
    """A pulled model with stable keys, for JSON."""
    from sluice_engine.pulled import read_origin

    origin = read_origin(model.folder)
    return {
        "name": model.uri,
        "revision": model.revision,
        "source": origin.source if origin is not None else model.uri,
        "licence": origin.licence if origin is not None else None,
        "size_bytes": model.size,
        "pulled_at": int(model.folder.stat().st_mtime),
        "folder": str(model.folder),
    }


def _facts(facts: "ModelFacts") -> dict[str, Any]:
    """The shape, and what this machine has for its KV cache, in the dtype that the engine computes in here."""
    from sluice_engine.backend.computed_dtype import computed_dtype
    from sluice_engine.backend.resources import memory_left

    dtype = computed_dtype(facts.dtype)
    free = max(0, memory_left() - facts.weight_bytes(dtype))
    each = facts.kv_bytes(dtype)
    return {
        "architecture": facts.architecture,
        "parameters": facts.parameters,
        "dtype": facts.dtype,
        "computed_in": dtype,
        "context_tokens": facts.context,
        "disk_bytes": facts.disk_bytes,
        "weight_bytes": facts.weight_bytes(dtype),
        "kv_bytes_per_token": each,
        "kv_tokens_that_fit": int(free * KV_SHARE) // each if each else None,
    }


def _rows(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines of `sluice model info`."""
    context, each, fit = entry["context_tokens"], entry["kv_bytes_per_token"], entry["kv_tokens_that_fit"]
    rows = [(name, str(entry[name])) for name in ("name", "source", "revision", "licence") if entry.get(name)]
    rows += [
        ("architecture", entry["architecture"]),
        ("parameters", count_words(entry["parameters"])),
        ("dtype", f"{entry['dtype']}, computed in {entry['computed_in']} on this machine"),
        ("context", f"{context:,} tokens" if context else "not in its config"),
        ("size on disk", size_words(entry["disk_bytes"])),
        ("weights in memory", size_words(entry["weight_bytes"])),
    ]
    if each:
        requests = f", {fit // context:,} requests of full context" if context else ""
        rows += [
            ("KV per token", size_words(each)),
            ("KV that fits here", f"{size_words(fit * each)}: {fit:,} tokens{requests}"),
        ]
    return [*rows, ("folder", entry["folder"])]


def _print_table(entries: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("NAME", overflow="fold")
    table.add_column("REVISION", no_wrap=True)
    table.add_column("SIZE", justify="right", no_wrap=True)
    table.add_column("PULLED", no_wrap=True)
    table.add_column("LICENCE", no_wrap=True)
    now = time.time()
    for entry in entries:
        table.add_row(
            entry["name"],
            entry["revision"][:12],
            size_words(entry["size_bytes"]),
            age_words(now - entry["pulled_at"]),
            entry["licence"] or "–",
        )
    if not console.is_terminal:
        console.width = 1000  # a pipe gets each model on one line
    console.print(table)
