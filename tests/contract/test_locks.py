"""The locks of the images: every package that an image needs, in the version of the constraints, with hashes.

The Dockerfiles install from the locks and from nothing else, torch and what only its CUDA build requires aside.
"""

import re
import tomllib
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
LOCKS = (*EXTRAS, "build")
LOCKED = "--no-deps --require-hashes -r .ci/{}.lock"
OUR_WHEEL = "--no-deps --no-index /wheels/*.whl"
TORCH = "-c .ci/constraints.txt torch"


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
def test_a_lock_has_every_package_of_its_image(image: str) -> None:
    assert needed("sluice", EXTRAS[image], set()) <= pins(f"{image}.lock").keys()


@pytest.mark.parametrize("image", LOCKS)
def test_a_lock_has_the_versions_of_the_constraints_and_a_hash_for_each(image: str) -> None:
    locked, constraints = pins(f"{image}.lock"), pins("constraints.txt")
    assert locked and {name: constraints[name] for name in locked} == locked
    text = (ROOT / ".ci" / f"{image}.lock").read_text(encoding="utf-8")
    entries = re.split(PIN, text)[3::3]
    assert len(entries) == len(locked) and all(HASH.search(entry) for entry in entries)


def test_the_lock_of_the_build_has_what_the_project_is_built_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = pins("build.lock")
    for requirement in map(Requirement, project["build-system"]["requires"]):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


def installs(image: str) -> list[tuple[str, str]]:
    """Each `pip install` and `pip wheel` of a Dockerfile: its environment, and its arguments but for what is said of output."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / image / "Dockerfile").read_text(encoding="utf-8"))
    quiet = re.compile(r"--(no-cache-dir|disable-pip-version-check|no-compile) ")
    found = re.findall(r"(\S*)/bin/pip (?:install|wheel) ([^&;\n]*)", text)
    assert len(found) == len(re.findall(r"pip3? +(?:install|wheel|download)|easy_install|uv pip", text))
    return [(environment, quiet.sub("", arguments).strip()) for environment, arguments in found]


BUILD = [
    ("/opt/build", LOCKED.format("build")),
    ("/opt/build", "--no-deps --no-build-isolation --wheel-dir /wheels ."),
    ("/opt/sluice", OUR_WHEEL),
]


def test_the_operators_image_has_what_is_locked_and_our_wheel() -> None:
    assert installs("operator") == [("/opt/sluice", LOCKED.format("operator")), *BUILD]


def test_the_engines_image_has_what_is_locked_before_torch_and_only_a_cuda_build_brings_more() -> None:
    torch = [("/opt/sluice", f"--no-deps {TORCH}"), ("/opt/sluice", TORCH)]
    assert installs("engine") == [("/opt/sluice", LOCKED.format("engine")), *torch, *BUILD]
    text = (ROOT / "engine/Dockerfile").read_text(encoding="utf-8")
    condition, _, rest = text.partition("then")
    assert condition.splitlines()[-1].strip().startswith('&& if grep -q "^cuda.*= \'[0-9]"')
    assert rest.strip().startswith("\\\n      /opt/sluice/bin/pip install") and TORCH in rest.partition("fi")[0]


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_checks_its_packages_and_leaves_pip_and_the_build_behind(image: str) -> None:
    build, *later = re.split(r"^FROM ", (ROOT / image / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)[
        1:
    ]
    assert build.index("pip check") > build.index(OUR_WHEEL)
    assert "pip uninstall" in build
    copied = [line for part in later for line in part.splitlines() if line.startswith("COPY --from")]
    assert copied == ["COPY --from=build /opt/sluice /opt/sluice"]


@pytest.mark.parametrize("image", LOCKS)
def test_a_lock_names_no_package_index(image: str) -> None:
    text = (ROOT / ".ci" / f"{image}.lock").read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    assert "torch" not in pins(f"{image}.lock")
