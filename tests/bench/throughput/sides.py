"""The engines of the comparison, and the interpreter of each."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.throughput import peer_venv


@dataclass(frozen=True, slots=True)
class Side:
    """One engine of the comparison."""

    name: str
    title: str
    module: str
    python: Callable[[], str]  # may install, so it is called only if the side takes part; raises PeerUnavailable
    environment: Callable[[str], Mapping[str, str]] = lambda python: {}  # additional variables, given the interpreter
    batch: int = 0  # requests per batch, one batch after the other; 0: all at once


def _here() -> str:
    return sys.executable


def vllm_python() -> str:
    """The interpreter that has vLLM, installed on first use. Raises PeerUnavailable."""
    return os.environ.get("SLUICE_BENCH_VLLM_PYTHON") or str(peer_venv.ensure())


def every_core(python: str) -> Mapping[str, str]:
    """Bind vLLM to all cores; by default it leaves one to its scheduler.

    This needs Intel's OpenMP, which its wheel contains.
    """
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    openmp = Path(python).parents[1] / "lib" / "libiomp5.so"
    return {"VLLM_CPU_OMP_THREADS_BIND": cores} | ({"LD_PRELOAD": str(openmp)} if openmp.exists() else {})


def _module(name: str) -> str:
    return f"tests.bench.throughput.side_{name}"


SIDES: Mapping[str, Side] = {
    side.name: side
    for side in (
        Side("ours", "Sluice", _module("ours"), _here),
        Side("vllm", "vLLM, CPU build", _module("vllm"), vllm_python),
        Side("vllm-cores", "vLLM, CPU build, told to use all cores", _module("vllm"), vllm_python, every_core),
        Side("static", "transformers, static batches of 16", _module("static"), _here, batch=16),
        Side("continuous", "transformers, continuous batching", _module("continuous"), _here),
    )
}
