"""A full disk behind the output of a command: one sentence, no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["crds"], ["simulate", "--help"]])
def test_output_to_a_full_disk_ends_a_command_with_a_sentence(arguments: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sluice", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "Error: No space left on device. Free some space, or write elsewhere.\n"
    assert (done.returncode, done.stderr) == (1, said)
