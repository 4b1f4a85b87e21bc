"""The bill of materials of the images lists what is installed, with what each part needs."""

import re
from importlib.metadata import PathDistribution, distributions, version
from pathlib import Path
from typing import Any

import pytest

from sluice.sbom import bill_of_materials

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return bill_of_materials(distributions())


def made(folder: Path, name: str, *lines: str, release: str = "1.0") -> PathDistribution:
    info = folder / f"{name}-{release}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(("Metadata-Version: 2.4", f"Name: {name}", f"Version: {release}", *lines)))
    return PathDistribution(info)


def test_every_installed_distribution_is_listed_once_with_its_version(document: dict[str, Any]) -> None:
    listed = {each["name"]: each["version"] for each in document["components"]}
    assert len(listed) == len(document["components"])
    assert document["metadata"]["component"]["name"] == "sluice" not in listed
    for name in ("kopf", "aiohttp", "torch", "prompt-toolkit"):
        assert listed[name] == version(name)


def test_every_dependency_leads_to_a_listed_component(document: dict[str, Any]) -> None:
    references = {each["bom-ref"] for each in (document["metadata"]["component"], *document["components"])}
    graph = {each["ref"]: set(each["dependsOn"]) for each in document["dependencies"]}
    assert set(graph) == references
    assert set().union(*graph.values()) <= references
    assert f"pkg:pypi/kopf@{version('kopf')}" in graph[document["metadata"]["component"]["bom-ref"]]


def test_names_versions_licences_and_extras(tmp_path: Path) -> None:
    document = bill_of_materials(
        (
            made(tmp_path, "sluice", 'Requires-Dist: Py_Torch>=2; extra == "engine"', "Requires-Dist: absent"),
            made(tmp_path, "Py.Torch", "License-Expression: BSD-3-Clause", release="2.1+cpu"),
            made(tmp_path, "other", 'Requires-Dist: sluice; extra == "dev"'),
        )
    )
    torch = {
        "type": "library", "bom-ref": "pkg:pypi/py-torch@2.1%2Bcpu", "name": "py-torch", "version": "2.1+cpu",
        "purl": "pkg:pypi/py-torch@2.1%2Bcpu", "licenses": [{"expression": "BSD-3-Clause"}],
    }  # fmt: skip
    assert torch in document["components"]
    assert {each["ref"]: each["dependsOn"] for each in document["dependencies"]} == {
        "pkg:pypi/other@1.0": [],
        "pkg:pypi/py-torch@2.1%2Bcpu": [],
        "pkg:pypi/sluice@1.0": ["pkg:pypi/py-torch@2.1%2Bcpu"],
    }


def test_an_environment_without_sluice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="sluice is not installed"):
        bill_of_materials([made(tmp_path, "other")])


@pytest.mark.parametrize("image", ["operator", "engine"])
def test_each_image_writes_it_after_the_last_change_of_its_environment(image: str) -> None:
    build = (ROOT / image / "Dockerfile").read_text().partition("\nFROM ")[2].partition("\nFROM ")[0]
    written = build.index("python -I -m sluice.sbom > /opt/sluice/sbom.cdx.json")
    assert written > max(match.start() for match in re.finditer(r"pip (un)?install", build))
