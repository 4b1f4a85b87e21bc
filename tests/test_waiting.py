"""`make test` has one worker more, for the tests that wait; its summary and exit code are those of all tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WAITING

ROOT = Path(__file__).parents[1]
TEST = "import os\nimport pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n):\n    assert os.environ['PYTEST_XDIST_WORKER'] {}\n"
OTHERS = ("tests/bench/test_a.py", "tests/monitoring/test_b.py", "tests/operator/test_c.py", "tests/sim/test_d.py")
STORIES = ("tests/kube/operators/test_e.py", "tests/kube/operators/test_f.py", "tests/kube/test_acceptance_models.py")


def run(folder: Path, files: dict[str, str]) -> tuple[int, str]:
    """pytest with three workers on these files; its exit code and what it printed."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.waiting", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", ".", "--import-mode=importlib", "-n", "3"],
        cwd=folder, env=environment | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_last_worker_runs_the_tests_that_wait_and_no_other(tmp_path: Path) -> None:
    others = {name: TEST.format("!= 'gw2'") for name in OTHERS}
    code, printed = run(tmp_path, others | {name: TEST.format("== 'gw2'") for name in STORIES[:1]})
    assert (code, re.findall(r"\d+ passed", printed)) == (0, ["15 passed"]), printed


@pytest.mark.parametrize("failing", [OTHERS[0], STORIES[1]])
def test_a_failure_of_either_part_is_the_exit_code_and_in_the_summary(tmp_path: Path, failing: str) -> None:
    files = dict.fromkeys((*OTHERS, *STORIES), "def test_it(): pass\n") | {failing: "def test_it(): assert False\n"}
    code, printed = run(tmp_path, files)
    assert code == 1 and f"FAILED {failing}::test_it" in printed
    assert re.findall(r"\d failed, \d+ passed", printed) == ["1 failed, 6 passed"]


def test_the_files_of_the_list_exist() -> None:
    assert all((ROOT / name).exists() for name in WAITING)
