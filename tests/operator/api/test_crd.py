"""The generated CRD is structural, small, described throughout, and the same as the committed files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sluice.cli import app
from sluice.commands.crds import FILES, crd_text
from sluice_operator.api import LLMDeployment, parse
from sluice_operator.api.base import Model
from sluice_operator.api.crd import custom_resource_definition

ROOT = Path(__file__).parents[3]
VERSION = custom_resource_definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
NOT_STRUCTURAL = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "const", "propertyNames", "patternProperties"}


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from walk(schema[inner], f"{path}[]")


def test_the_schema_is_structural() -> None:
    for path, node in walk(SCHEMA):
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert not NOT_STRUCTURAL & set(node), path
        assert node.get("default", ...) is not None, path
        assert isinstance(node.get("exclusiveMinimum", True), bool), path
        assert node.get("nullable") is None, path


def test_the_resource_has_no_floats() -> None:
    assert not [path for path, node in walk(SCHEMA) if node.get("type") == "number"]
    assert "number" not in {column["type"] for column in VERSION["additionalPrinterColumns"]}


def test_every_field_is_explained() -> None:
    for path, node in walk(SCHEMA):
        if path.startswith((".spec", ".status")) and not path.endswith("[]"):
            assert len(node.get("description", "")) > 3, path


def test_everything_in_the_spec_is_bounded() -> None:
    for path, node in walk(SCHEMA["properties"]["spec"], "spec"):
        match node.get("type", "int-or-string"):
            case "int-or-string":
                assert {"minimum", "maxLength", "pattern"} <= set(node), path
            case "string":
                assert "maxLength" in node or "enum" in node, path
            case "integer":
                assert {"minimum", "maximum"} <= set(node), path
            case "array":
                assert "maxItems" in node, path
            case "object" if "properties" not in node:
                assert "maxProperties" in node, path


def test_a_whole_quantity_may_be_written_as_a_number() -> None:
    resources = {"requests": {"cpu": 4}, "limits": {"cpu": "4"}}
    document = {"metadata": {"name": "a"}, "spec": {"model": {"uri": "pvc://c"}, "engine": {"resources": resources}}}
    assert parse(document, strict=False).spec.engine.resources.requests == {"cpu": "4"}


def test_defaults_are_what_the_types_say() -> None:
    minimal = {"metadata": {"name": "a"}, "spec": {"model": {"uri": "pvc://c"}}}
    parsed = parse(minimal, strict=False).spec.model_dump(by_alias=True, exclude_none=True, mode="json")
    spec = SCHEMA["properties"]["spec"]["properties"]
    for name, field in spec.items():
        if name != "model":
            assert field["default"] == parsed[name], name
    assert spec["model"]["properties"]["dtype"]["default"] == parsed["model"]["dtype"]


def test_every_rule_is_in_the_schema_and_on_both_sides() -> None:
    def rules(model: type[Model]) -> Iterator[str]:
        for subclass in model.__subclasses__():
            yield from (rule.sentence for rule in subclass.RULES)

    shown = {r["message"] for _, node in walk(SCHEMA) for r in node.get("x-kubernetes-validations", ())}
    assert shown == set(rules(Model))
    assert "scaling.minReplicas must be less than or equal to scaling.maxReplicas" in shown
    assert LLMDeployment.RULES[0].sentence in shown


def test_scale_status_names_and_columns() -> None:
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = VERSION["additionalPrinterColumns"]
    assert [c["name"].upper() for c in columns if not c.get("priority")] == [
        "MODEL", "READY", "REPLICAS", "DESIRED", "KV%", "TTFT", "ITL", "REASON", "AGE",
    ]  # fmt: skip
    assert [c["name"].upper() for c in columns if c.get("priority")] == ["LIMIT", "IMAGE", "SLO"]
    names = custom_resource_definition()["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == (["llmd"], ["sluice"])


def test_columns_show_fields_that_exist() -> None:
    fields = {path for path, _ in walk(SCHEMA)}
    for column in VERSION["additionalPrinterColumns"]:
        path = column["jsonPath"].split("[")[0]
        assert path in fields or path.startswith(".metadata."), column


def test_the_file_is_small_and_without_aliases() -> None:
    text = crd_text()
    assert len(text.encode()) < 100_000
    assert yaml.safe_load(text) == custom_resource_definition()
    assert "&id" not in text


def test_the_committed_files_are_current() -> None:
    result = CliRunner().invoke(app, ["crds", "--check", "--root", str(ROOT)])
    assert result.exit_code == 0, result.output


def test_a_stale_file_fails_the_check_and_write_updates_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    stale = CliRunner().invoke(app, ["crds", "--check", "--root", str(tmp_path)])
    assert stale.exit_code == 1
    assert "make generate" in stale.output
    assert CliRunner().invoke(app, ["crds", "--write", "--root", str(tmp_path)]).exit_code == 0
    assert all((tmp_path / file).read_text() == crd_text() for file in FILES)
    assert CliRunner().invoke(app, ["crds", "--check", "--root", str(tmp_path)]).exit_code == 0


def test_elsewhere_than_in_the_repository_it_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["crds", "--write", "--root", str(tmp_path)])
    assert result.exit_code == 2
    assert "--root" in result.output


@pytest.mark.parametrize("sample", sorted((ROOT / "crds/samples").glob("*.yaml")), ids=lambda path: path.stem)
def test_samples_are_valid(sample: Path) -> None:
    documents = list(yaml.safe_load_all(sample.read_text()))
    ours = [document for document in documents if document["kind"] == "LLMDeployment"]
    assert [parse(document).name for document in ours]
