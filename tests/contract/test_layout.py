"""The walls of the repository that no linter watches: file sizes, where packages may be, what runs without torch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("operator", "engine", "kernels", "tests", "e2e")
MOST_LINES = 400
MOST_HANDLER_LINES = 100
READ_FIRST = (
    "core/engine.py",
    "scheduler/scheduler.py",
    "kvcache/block_pool.py",
)  # of the engine, as CONTRIBUTING.md names them
MOST_LINES_READ_FIRST = 250

# What the operator image and a simulator on a laptop must import without torch, transformers or triton installed.
WITHOUT_TORCH = (
    "sluice.contract",
    "sluice_perfmodel.concurrency_limit",
    "sluice_perfmodel.step_time",
    "sluice_engine",
    "sluice_engine.request",
    "sluice_engine.kvcache.block_pool",
    "sluice_engine.scheduler",
    "sluice_engine.limits",
    "sluice_engine.control.limit_controller",
    "sluice_operator.runtime.watches",
    "sluice_operator.reconcile.reconciler",
    "sluice_gateway.process",
    "sluice_sim",
    "sluice.cli",
)


GUIDE = (ROOT / "CONTRIBUTING.md").read_text()


def steps_of(title: str) -> tuple[str, list[str]]:
    """The folder that a walk of CONTRIBUTING.md is under, and the files of its numbered steps."""
    section = GUIDE.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    (folder,) = re.findall(r"All paths are under `(.+?)`", section)
    return folder, re.findall(r"^\d+\. `(.+?)`", section, flags=re.MULTILINE)


def python_files() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_python_file_is_above_400_lines() -> None:
    files = python_files()
    assert files
    assert {str(path.relative_to(ROOT)): lines_of(path) for path in files if lines_of(path) > MOST_LINES} == {}


def test_the_handlers_file_is_under_100_lines() -> None:
    assert lines_of(ROOT / "operator/sluice_operator/runtime/watches.py") < MOST_HANDLER_LINES


@pytest.mark.parametrize("name", READ_FIRST)
def test_what_contributing_says_to_read_first_is_short(name: str) -> None:
    assert f"`{name}`" in GUIDE
    assert lines_of(ROOT / "engine/sluice_engine" / name) < MOST_LINES_READ_FIRST


@pytest.mark.parametrize("root", ["operator", "engine", "kernels"])
def test_a_source_root_is_not_a_package(root: str) -> None:
    assert not (ROOT / root / "__init__.py").exists()


def test_there_is_no_package_file_under_tests() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_module_says_why_it_exists() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if path.read_text().strip() and not path.read_text().lstrip().startswith(('"""', "#!"))
    ]
    assert silent == []


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_it_imports_where_torch_is_not_installed(module: str) -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'triton', 'safetensors', 'tokenizers'):\n"
        "    sys.modules[name] = None\n"  # an import of it raises ImportError, as where it is not installed
        f"import {module}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("title", "most"), [("One step of the engine", 8), ("One change of a spec", 10)])
def test_each_walkthrough_of_contributing_is_short_and_its_files_exist(title: str, most: int) -> None:
    folder, files = steps_of(title)
    assert 0 < len(files) <= most
    assert [name for name in files if not (ROOT / folder / name).is_file()] == []


def test_every_path_that_contributing_names_exists() -> None:
    roots = ("operator/", "engine/", "kernels/", "tests/", "charts/", "crds/")
    named = [path for path in re.findall(r"`([^` ]+)`", GUIDE) if path.startswith(roots)]
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []
