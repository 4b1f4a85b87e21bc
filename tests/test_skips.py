"""In CI a test that skips for an unexpected reason fails; elsewhere it skips. No test ends early without saying so."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "import pytest\n"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
UNEXPECTED = {
    "by a call": "def test_it() -> None:\n    pytest.skip('there is no C compiler')",
    "by a mark": "@pytest.mark.skip(reason='slow')\ndef test_it() -> None: pass",
    "by a fixture": "@pytest.fixture\ndef tool(): pytest.skip('no helm')\ndef test_it(tool) -> None: pass",
    "by an import": "pytest.importorskip('no_such_module')\ndef test_it() -> None: pass",
    "by no parameters": "@pytest.mark.parametrize('x', [])\ndef test_it(x) -> None: pass",
    "by an expected failure": "@pytest.mark.xfail(reason='some day')\ndef test_it() -> None: assert False",
    "beside an expected reason": "def test_it() -> None:\n    pytest.skip('no GPU is visible or wanted')",
}
EXPECTED = "def test_it() -> None:\n    pytest.skip('no GPU is visible')"


def run(folder: Path, *texts: str, options: tuple[str, ...] = (), ci: str | None = "true") -> tuple[int, str]:
    """pytest on one file for each text, under this repository's conftest; the exit code and what it printed."""
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(f"{HEAD}{text}\n")
    (folder / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | ({} if ci is None else {"CI": ci})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".",
         "--continue-on-collection-errors", *options],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_each_unexpected_skip_fails_a_ci_run_and_says_what_to_do(tmp_path: Path) -> None:
    code, printed = run(tmp_path, *UNEXPECTED.values())
    assert code != 0, printed
    assert printed.count("Unexpected skip: ") == len(UNEXPECTED) == printed.count("EXPECTED_SKIPS in conftest.py")
    assert not re.search(r"\d (skipped|passed|xfailed)", printed), printed


def test_an_expected_skip_is_one_in_ci_too(tmp_path: Path) -> None:
    code, printed = run(tmp_path, f"{EXPECTED}\ndef test_other() -> None: pass")
    assert (code, "1 passed, 1 skipped" in printed) == (0, True), printed


def test_elsewhere_a_skip_is_shown_with_its_reason(tmp_path: Path) -> None:
    code, printed = run(tmp_path, UNEXPECTED["by a call"], ci=None)
    assert code == 0 and re.search(r"SKIPPED .*: there is no C compiler", printed), printed


def test_the_option_says_more_than_the_environment(tmp_path: Path) -> None:
    assert run(tmp_path, UNEXPECTED["by a call"], options=("--unexpected-skips=allow",))[0] == 0
    assert run(tmp_path, UNEXPECTED["by a call"], options=("--unexpected-skips=fail",), ci=None)[0] != 0


def test_the_ci_script_refuses_unexpected_skips() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    set_before = lines[: lines.index("phase test make test")]
    assert any(line.startswith("export CI=true") for line in set_before)


def returns(node: ast.AST) -> list[int]:
    """Lines on which a function returns, without those of functions inside it."""
    inside = [child for child in ast.iter_child_nodes(node) if not isinstance(child, FUNCTIONS | ast.Lambda)]
    own = [child.lineno for child in inside if isinstance(child, ast.Return)]
    return own + [line for child in inside for line in returns(child)]


def test_no_test_returns_early_where_it_should_skip() -> None:
    found, tests = list[str](), 0
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, FUNCTIONS) and node.name.startswith("test_"):
                tests += 1
                found += [f"{path.relative_to(ROOT)}:{line} in {node.name}" for line in returns(node)]
    assert tests > 1000
    assert not found, "call pytest.skip() with a reason: " + "; ".join(found)
