"""Every kernel against its reference.

Triton looks at TRITON_INTERPRET while it is imported, and other tests of this run import it without (transformers
does). So the properties run in a process of their own: interpreted here, compiled where a GPU is.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name for path in Path(__file__).parent.glob("properties_*.py"))
KERNELS = sorted(path.parent.name for path in (ROOT / "kernels" / "sluice_kernels").glob("*/triton.py"))


def test_every_kernel_has_properties_and_a_reference() -> None:
    assert [f"properties_{name}.py" for name in KERNELS] == FILES
    for name in KERNELS:
        for part in ("__init__", "reference", "configs"):
            assert (ROOT / "kernels" / "sluice_kernels" / name / f"{part}.py").is_file()


@pytest.mark.timeout(600)
def test_the_kernels_have_the_properties_of_their_references() -> None:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    files = [f"tests/kernels/{name}" for name in FILES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
