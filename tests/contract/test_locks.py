"""The locks of the images: every package that an image needs, in the version of the constraints, with hashes."""

import re
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
EXTRAS = {"operator": ("operator", "otel"), "engine": ("engine", "gguf", "otel")}


def pins(file: str) -> dict[str, str]:
    """The versions by canonical name."""
    text = (ROOT / ".ci" / file).read_text(encoding="utf-8")
    return {canonicalize_name(name): version for name, version in PIN.findall(text)}


def needed(package: str, extras: Iterable[str], found: set[str]) -> set[str]:
    """The packages that this one requires on this platform, with their own, added to those found."""
    for text in requires(package) or ():
        one = Requirement(text)
        name = canonicalize_name(one.name)
        applies = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if applies and name not in found and name != "torch":
            found.add(name)
            needed(name, one.extras, found)
    return found


@pytest.mark.parametrize("image", EXTRAS)
def test_a_lock_has_every_package_of_its_image_with_hashes(image: str) -> None:
    locked, constraints = pins(f"{image}.lock"), pins("constraints.txt")
    assert needed("sluice", EXTRAS[image], set()) <= locked.keys()
    assert {name: constraints[name] for name in locked} == locked
    text = (ROOT / ".ci" / f"{image}.lock").read_text(encoding="utf-8")
    entries = re.split(PIN, text)[3::3]
    assert len(entries) == len(locked) and all(HASH.search(entry) for entry in entries)


@pytest.mark.parametrize("image", EXTRAS)
def test_a_lock_names_no_package_index(image: str) -> None:
    text = (ROOT / ".ci" / f"{image}.lock").read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    assert "torch" not in pins(f"{image}.lock")
