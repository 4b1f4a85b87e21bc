"""The table of `sluice status`: one row per LLMDeployment, and below it the reason for its state as one sentence."""

from collections.abc import Sequence
from typing import Final

from sluice.cluster.columns import Column, table
from sluice.cluster.summary import Summary
from sluice.sentences import wrapped

COLUMNS: Final = (
    Column("NAME", least=16),
    Column("MODEL", least=8),
    Column("READY", right=True),
    Column("PHASE"),
    Column("SLO %", right=True),
    Column("KV %", right=True),
    Column("LIMIT", right=True),
)


def status_lines(summaries: Sequence[Summary], width: int, *, namespaces: bool = False) -> list[str]:
    """The lines of the table. `namespaces`: names are shown as namespace/name."""
    rows = [_row(each, namespaces) for each in summaries]
    heading, *lines = table(COLUMNS, rows, width)
    found = [heading]
    for each, line in zip(summaries, lines, strict=True):
        found += [line, *wrapped(f"  {_sentence(each)}", width).splitlines()]
    return found


def number(value: float | None) -> str:
    """A number as it is, or a dash for one that is not known."""
    return "–" if value is None else f"{value:g}"


def _row(each: Summary, namespaces: bool) -> list[str]:
    return [
        f"{each.namespace}/{each.name}" if namespaces else each.name,
        _short_model(each.model),
        f"{each.ready}/{number(each.desired)}",
        each.phase,
        number(each.attainment_percent),
        number(each.kv_percent),
        number(each.limit),
    ]


def _sentence(each: Summary) -> str:
    """The sentence, after its reason where the phase does not give it."""
    if each.reason in ("", each.phase, "Serving"):
        return each.sentence
    return f"{each.reason}: {each.sentence}"


def _short_model(uri: str) -> str:
    """The last part of the URI, without a revision: `Qwen3-8B` of hf://Qwen/Qwen3-8B@main."""
    return uri.rstrip("/").rpartition("/")[2].partition("@")[0]
