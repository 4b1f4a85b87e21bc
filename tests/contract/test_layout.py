"""The walls of the repository that no linter watches: file sizes, where packages may be, what runs without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("operator", "engine", "kernels", "tests", "e2e")
MOST_LINES = 400
MOST_HANDLER_LINES = 100
READ_FIRST = ("loop.py", "scheduler/scheduler.py", "blocks.py")  # of the engine, as the README names them
MOST_LINES_READ_FIRST = 250

# What the operator image and a simulator on a laptop must import without torch, transformers or triton installed.
WITHOUT_TORCH = (
    "sluice.contract",
    "sluice_law.limit",
    "sluice_law.steptime",
    "sluice_engine",
    "sluice_engine.request",
    "sluice_engine.blocks",
    "sluice_engine.scheduler",
    "sluice_engine.admission",
    "sluice_operator.handlers",
    "sluice_operator.reconcile",
    "sluice_gateway",
    "sluice_sim",
    "sluice.cli",
)


def python_files() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_python_file_is_above_400_lines() -> None:
    files = python_files()
    assert files
    assert {str(path.relative_to(ROOT)): lines_of(path) for path in files if lines_of(path) > MOST_LINES} == {}


def test_the_handlers_file_is_under_100_lines() -> None:
    assert lines_of(ROOT / "operator/sluice_operator/handlers.py") < MOST_HANDLER_LINES


@pytest.mark.parametrize("name", READ_FIRST)
def test_what_the_readme_says_to_read_first_is_short(name: str) -> None:
    assert f"* `{name}`: " in (ROOT / "README.md").read_text()
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
