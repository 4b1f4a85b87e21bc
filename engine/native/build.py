"""Compiles the CPU kernels if a C compiler is available. Standard library only.

The build hook runs it as a separate program: `python engine/native/build.py`. The library has a plain C interface and
selects its instructions at run time, so one build serves every processor of its architecture.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = sorted(FOLDER.rglob("*.c"))
LIBRARY = FOLDER.parent / "sluice_engine" / "_native" / "libsluice_cpu.so"
_FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")


def compilers() -> list[str]:
    """Returns the C compilers to try: $CC, then the usual names found on the path."""
    named = [os.environ["CC"]] if os.environ.get("CC") else []
    return named + [name for name in ("cc", "gcc", "clang") if shutil.which(name)]


def compile_library(target: Path, candidates: Sequence[str], options: Sequence[str] = ()) -> str | None:
    """Compiles with the first compiler that succeeds, and with `options` beside the usual ones.

    Returns None, or the reason why there is no library; an older library is removed in that case.
    """
    target.unlink(missing_ok=True)
    if not candidates:
        return "there is no C compiler"
    problems: list[str] = []
    for compiler in candidates:
        problem = _try(compiler, target, options)
        if problem is None:
            return None
        problems.append(problem)
    return "; ".join(problems)


def _try(compiler: str, target: Path, options: Sequence[str]) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / target.name
        try:
            command = [compiler, *_FLAGS, *options, "-o", str(made), *map(str, SOURCES), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(made, target)
        except subprocess.CalledProcessError as error:
            said = [line for line in error.stderr.splitlines() if "error" in line] or error.stderr.splitlines()
            return f"{compiler} failed: {next(iter(said), 'it said nothing')}"
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{compiler} did not run: {error}"
    return None


def main() -> int:
    """Returns 0 if the library was compiled; 1 otherwise, with the reason on standard error."""
    problem = compile_library(LIBRARY, compilers())
    if problem is not None:
        sys.stderr.write(problem + "\n")
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
