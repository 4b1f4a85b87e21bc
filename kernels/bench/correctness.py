"""All correctness cases of all kernels, compiled or interpreted.

On a GPU most of the time is the compiler's, so that processes share the cases. A process that a wrong access ends takes its
own next cases with it and no others.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Final

import torch
from bench.cases import block_copy, kv_write, moe, paged_decode, paged_prefill, rms_norm, sample, silu_mul, w4a16, w8a16
from bench.cases.memory import Mismatch

# Cases that run by themselves, cases that need a GPU, and the comparison.
KERNELS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Any, str], float]]]] = {
    module.__name__.rsplit(".", 1)[1]: (dict(module.NAMED), dict(module.LARGE), module.compare)
    for module in (rms_norm, silu_mul, kv_write, paged_decode, paged_prefill, block_copy, sample, w4a16, w8a16, moe)
}
SMALL_STEP: Final = 5  # a rehearsal runs every fifth case; the tests run them all
PROCESSES: Final = 12  # at once: an H100's 80 GB held ten of them beside six other ones
SHARES: Final = 36  # of the cases, one process each
RIGHT: Final = "right"

Case = tuple[str, str]  # the kernel and its case


def check(device: str, *, small: bool) -> None:
    """Prints a line per kernel and one per failed case. Raises Mismatch if a case failed."""
    outcomes = _by_processes(device) if device == "cuda" else _told(dict(_outcomes(cases(small=small), device)))
    for kernel in KERNELS:
        of_this = [outcome for (whose, _), outcome in outcomes.items() if whose == kernel]
        wrong = sum(outcome != RIGHT for outcome in of_this)
        print(f"{kernel}: {len(of_this) - wrong} cases right, {wrong} wrong", flush=True)
    if wrong_cases := sum(outcome != RIGHT for outcome in outcomes.values()):
        raise Mismatch(f"{wrong_cases} cases differ from their references")


def _by_processes(device: str) -> dict[Case, str]:
    """The outcomes of all cases."""
    outcomes: dict[Case, str] = {}
    with ThreadPoolExecutor(min(PROCESSES, os.cpu_count() or 1)) as pool:
        for running in as_completed([pool.submit(_in_a_process, share, device) for share in range(SHARES)]):
            outcomes |= _told(running.result())
    return outcomes


def _told(outcomes: dict[Case, str]) -> dict[Case, str]:
    """The same, after a line for each failed case."""
    for (kernel, name), outcome in outcomes.items():
        if outcome != RIGHT:
            print(f"FAILED {kernel}, {name}: {outcome}", flush=True)
    return outcomes


def cases(*, small: bool) -> list[Case]:
    """All cases of all kernels, or those of a rehearsal."""
    chosen = {
        kernel: list(named)[::SMALL_STEP] if small else [*named, *large]
        for kernel, (named, large, _) in KERNELS.items()
    }
    return [(kernel, name) for kernel, names in chosen.items() for name in names]


def share_of(index: int) -> list[Case]:
    """The cases of one process of `SHARES`: some of each kernel."""
    return cases(small=False)[index::SHARES]


def _outcomes(chosen: Sequence[Case], device: str) -> Iterator[tuple[Case, str]]:
    """`RIGHT` for each case, or its error on one line."""
    for kernel, name in chosen:
        named, large, compare = KERNELS[kernel]
        try:
            compare((named | large)[name], device)
        except Exception as error:  # noqa: BLE001 - a kernel that does not compile is one failed case
            yield (kernel, name), " ".join(repr(error).split())
        else:
            yield (kernel, name), RIGHT


def _in_a_process(share: int, device: str) -> dict[Case, str]:
    """The outcomes of a share, computed by a process of its own."""
    command = [sys.executable, "-m", "bench.correctness", str(share), device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    chosen, lines = share_of(share), done.stdout.splitlines()
    last = done.stderr.strip().rpartition("\n")[2]
    lost = f"not run: its process ended with exit code {done.returncode}: {last}"
    return {case: lines[index] if index < len(lines) else lost for index, case in enumerate(chosen)}


def _main(share: int, device: str) -> None:
    """Prints a line per case of a share. Ends where the device answers no more, as after a wrong access."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // PROCESSES))
    for _, outcome in _outcomes(share_of(share), device):
        print(outcome, flush=True)
        if outcome != RIGHT and device == "cuda":
            torch.cuda.synchronize()
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
