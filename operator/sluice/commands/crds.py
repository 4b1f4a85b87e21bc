"""`sluice crds`: prints, writes or checks the CustomResourceDefinition that is generated from the types."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sluice import contract

CRD_FILE: Final = Path("crds") / f"{contract.GROUP}_{contract.PLURAL}.yaml"
CHART_FILE: Final = Path("charts/sluice/files") / CRD_FILE.name
FILES: Final = (CRD_FILE, CHART_FILE)  # helm packages no file from outside the chart's folder, so the chart has a copy

_FLOW_COLUMN: Final = 24  # indentation of the fields of spec.engine.template: what they contain is in flow style
_WIDTH: Final = 160
_DEEP_WIDTH: Final = 2000


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("crds")(crds)


def crds(
    write: Annotated[bool, typer.Option("--write", help="Write crds/ and the chart's copy.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where the written files differ.")] = False,
    root: Annotated[Path, typer.Option(help="The repository's root, for --write and --check.")] = Path(),
) -> None:
    """Print the CustomResourceDefinition of LLMDeployment, ready for `kubectl apply --server-side -f -`."""
    text = crd_text()
    if write and check:
        typer.echo("--write and --check exclude each other: give one of them.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    if not (write or check):
        typer.echo(text, nl=False)
        return
    if not (root / "pyproject.toml").is_file():
        typer.echo(f"{root.resolve()} is not the repository's root: run this there, or give --root.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    stale = [file for file in FILES if not (root / file).is_file() or (root / file).read_text("utf-8") != text]
    for file in stale:
        if write:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text, "utf-8")
            typer.echo(f"wrote {file}")
        else:
            typer.echo(f"{file} differs from the types in sluice_operator.api: run `make generate`.", err=True)
    if check and stale:
        raise typer.Exit(contract.EXIT_FAILED)


def crd_text() -> str:
    """The CRD as YAML."""
    import yaml

    from sluice_operator.api.crd import custom_resource_definition

    class Dumper(yaml.SafeDumper):
        """Writes a field without fields of its own in flow style, and what lies deep too, with one indentation, long lines
        and no spaces after commas: at the depth of an affinity, indentation would be half of the file."""

        def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
            """Choose the style of a mapping."""
            return super().represent_mapping(tag, mapping, flow_style if _has_fields(mapping) else True)

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            """Keep the indentation inside of a flow."""
            if self.flow_level > 1:
                self.indents.append(self.indent)
            else:
                super().increase_indent(flow, indentless)

        def expect_node(self, *arguments: Any, **options: Any) -> None:
            """Set the width of lines, outside of a flow."""
            if not self.flow_level:
                self.best_width = _DEEP_WIDTH if self.is_deep else _WIDTH
            super().expect_node(*arguments, **options)

        @property
        def is_deep(self) -> bool:
            """True for the fields of spec.engine.template and what they contain."""
            return (self.indent or 0) >= _FLOW_COLUMN

        def expect_block_mapping(self) -> None:
            """Begin a mapping that is not a leaf."""
            (super().expect_flow_mapping if self.is_deep else super().expect_block_mapping)()

        def expect_block_sequence(self) -> None:
            """Begin a sequence that is not a leaf."""
            (super().expect_flow_sequence if self.is_deep else super().expect_block_sequence)()

        def write_indicator(self, indicator: str, *arguments: Any, **options: Any) -> None:
            """Write a comma or another mark."""
            is_tight = indicator == "," and self.best_width == _DEEP_WIDTH
            super().write_indicator(indicator, *arguments, **options | ({"whitespace": True} if is_tight else {}))

    body = yaml.dump(
        custom_resource_definition(),
        Dumper=Dumper,
        sort_keys=False,
        width=_WIDTH,
        allow_unicode=True,
        default_flow_style=None,
    )
    return f"# Generated from operator/sluice_operator/api by `make generate`. Do not edit.\n{body}"


def _has_fields(node: Any) -> bool:
    """True if a part of a schema, or a part of that, has properties."""
    if isinstance(node, dict):
        return "properties" in node or any(map(_has_fields, node.values()))
    return isinstance(node, list) and any(map(_has_fields, node))
