"""Writes charts/sluice/README.md: each value with its default and its comment in values.yaml.

A comment belongs to the key under it. A key without one has that of the group it is in.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its dotted name, its default as JSON, and its comment."""

    name: str
    default: str
    text: str


def values_of(text: str) -> list[Value]:
    """Return the values of a values.yaml. Raises ValueError for a value that neither it nor its group has a comment for."""
    found = list(_values(yaml.compose(text, Loader=yaml.SafeLoader), text.splitlines(), "", ""))
    if bare := [each.name for each in found if not each.text]:
        raise ValueError(f"values.yaml has no comment for {', '.join(bare)}")
    return found


def reference(text: str) -> str:
    """Return the reference as Markdown."""
    rows = [f"| `{each.name}` | `{each.default}` | {each.text} |" for each in values_of(text)]
    return "\n".join(
        (
            "<!-- Generated from values.yaml by `make generate`. Do not edit. -->",
            "# The chart's values",
            "",
            (
                "`helm install sluice charts/sluice --namespace sluice-system --create-namespace`. Values that are not listed are "
                "refused. [RUNBOOK.md](RUNBOOK.md) has a section for each alert."
            ),
            "",
            "| Value | Default | |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


def _values(node: Any, lines: list[str], prefix: str, inherited: str) -> Iterator[Value]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        text = _comment(lines, key.start_mark.line) or inherited
        if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
            yield from _values(value, lines, f"{name}.", text)
        else:
            default = yaml.safe_load(yaml.serialize(value))
            yield Value(name, json.dumps(default).replace("|", "\\|"), text)


def _comment(lines: list[str], line: int) -> str:
    """The comment lines right above a line, at its indentation."""
    indent = len(lines[line]) - len(lines[line].lstrip())
    found: list[str] = []
    while line > 0 and lines[line - 1].startswith(" " * indent + "#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip().removeprefix("--").strip())
    return " ".join(found).replace("|", "\\|")
