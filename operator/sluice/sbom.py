"""Writes the software bill of materials of this Python environment: CycloneDX 1.6 JSON on standard output.

The images run it when everything is installed, so that it lists what is in them, torch's build included. It uses the
standard library only and has no timestamp: one environment gives one text. Debian's packages are not in it.
"""

import json
import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from typing import Any, Final

ROOT: Final = "sluice"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def bill_of_materials(installed: Iterable[Distribution]) -> dict[str, Any]:
    """Return the document. Raises LookupError if Sluice is not among the installed distributions."""
    found = {_normal(each.metadata["Name"]): each for each in installed}
    if ROOT not in found:
        raise LookupError("sluice is not installed in this environment; run `pip install .` first")
    references = {name: _purl(name, each) for name, each in found.items()}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(ROOT, found[ROOT], "application")},
        "components": [_component(name, found[name], "library") for name in sorted(found) if name != ROOT],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[each] for each in _needs(name, found))}
            for name in sorted(found)
        ],
    }


def _component(name: str, distribution: Distribution, kind: str) -> dict[str, Any]:
    purl = _purl(name, distribution)
    component: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "version": distribution.version,
        "purl": purl,
    }
    if "License-Expression" in distribution.metadata:
        component["licenses"] = [{"expression": distribution.metadata["License-Expression"]}]
    return component


def _needs(name: str, found: dict[str, Distribution]) -> set[str]:
    """What is installed of a distribution's requirements; those of extras only for Sluice, whose extras the images choose."""
    requirements = [text for text in found[name].requires or () if name == ROOT or "extra ==" not in text]
    names = {_normal(match[0]) for text in requirements if (match := _NAME.match(text))}
    return {each for each in names if each in found and each != name}


def _purl(name: str, distribution: Distribution) -> str:
    """A local version (torch's +cpu) is part of the version, with the plus escaped."""
    return f"pkg:pypi/{name}@{distribution.version.replace('+', '%2B')}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(bill_of_materials(distributions()), sys.stdout, indent=1)
