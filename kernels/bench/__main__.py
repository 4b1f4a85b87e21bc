"""`make gpu` checks every compiled kernel against its reference, measures its speed, and serves with the engine. The first
three parts need torch and triton only, the others what the engine needs. No part uses the network.

`--device cpu --small` rehearses the whole script in Triton's interpreter with small shapes: its times mean nothing. Each
part runs after a failed one too, and after one that hangs, because each has a process: what a wrong access leaves of a
process's device is of no use to the next. A part that takes too long is cut and fails; the run ends within nine minutes.
Exit codes: 0 all is right, 1 a part failed, 2 no CUDA device is visible.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic as now
from typing import Final

ALL_SECONDS: Final = 520.0  # of nine minutes: the rest is for the start, the end of the last part, and the bars
PART_SECONDS: Final = 240.0  # of one part
KILLED_SECONDS: Final = 5.0  # until a killed process has ended: one that waits for its device may not


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results"))
    parser.add_argument("--part", help="run this part alone")
    parser.add_argument("--work", type=Path, help="folder of what the parts hand on; a new one unless given")
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("make gpu needs a CUDA device and torch sees none here: run it on a machine with a GPU, or rehearse with "
              "make gpu DEVICE=cpu SMALL=1.", file=sys.stderr)  # fmt: skip
        return 2
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        if options.part is None:
            return _run_all([*arguments, "--work", str(work)], options, work)
        return _run_part(options, work)


def _run_all(arguments: list[str], options: argparse.Namespace, work: Path) -> int:
    from bench import parts

    started = now()
    for part in parts.PARTS:
        limit = min(PART_SECONDS, ALL_SECONDS - (now() - started))
        if limit <= 0:
            print(f"{part}: FAILED, no time is left", flush=True)
        elif not _ends_within(limit, _command(arguments, part)):
            print(f"{part}: FAILED, cut after {limit:.0f} s", flush=True)
    run = parts.Run(options.device, options.results, work, small=options.small)
    run.part(parts.BARS)
    failed = run.progress.failed((*parts.PARTS, parts.BARS))
    print(f"{now() - started:.0f} s in all; failed: {', '.join(failed) or 'none'}")
    if options.device == "cpu":
        print("A rehearsal in the interpreter: no speed was measured.")
    return 1 if failed else 0


def _command(arguments: list[str], part: str) -> list[str]:
    """Runs a part."""
    return [sys.executable, "-m", "bench", *arguments, "--part", part]


def _ends_within(seconds: float, command: list[str]) -> bool:
    """Run the command. False if it does not end in time: it is killed then, with all processes that it started."""
    process = subprocess.Popen(command, process_group=0)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    finally:  # its own processes would slow the next part down
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_SECONDS)
    return True


def _run_part(options: argparse.Namespace, work: Path) -> int:
    import torch
    from bench import parts

    if options.device == "cpu":
        from bench.interpreter import correct_interpreter

        torch.set_num_threads(1)
        correct_interpreter()
    run = parts.Run(options.device, options.results, work, small=options.small)
    return 0 if run.part(options.part) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
