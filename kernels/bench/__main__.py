"""`make gpu` checks every compiled kernel against its reference, measures its speed, and serves with the engine. The first
three parts need torch and triton only, the others what the engine needs. No part uses the network.

`--device cpu --small` rehearses the whole script in Triton's interpreter with small shapes: its times mean nothing. Each
part runs after a failed one too: what a wrong access leaves of a process's device is of no use to the next, so that the
parts of each group have a process. Exit codes: 0 all is right, 1 a part failed, 2 no CUDA device is visible.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

GROUP_SECONDS: Final = 400.0  # of one that hangs; all together take less than nine minutes


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results"))
    parser.add_argument("--group", help="run the parts of this group alone")
    parser.add_argument("--work", type=Path, help="folder of what the groups hand on; a new one unless given")
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
        if options.group is None:
            return _run_all([*arguments, "--work", str(work)], options, work)
        return _run_group(options, work)


def _run_all(arguments: list[str], options: argparse.Namespace, work: Path) -> int:
    from bench import parts, progress

    started, failed = time.monotonic(), []
    for group, names in parts.GROUPS.items():
        command = [sys.executable, "-m", "bench", *arguments, "--group", group]
        with subprocess.Popen(command, process_group=0) as process:
            try:
                process.wait(GROUP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{group}: ended after {GROUP_SECONDS:.0f} s", flush=True)
            finally:  # its own processes too, which would slow the next group down
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        failed += progress.load(work / parts.PROGRESS).failed(names)
    print(f"{time.monotonic() - started:.0f} s in all; failed: {', '.join(failed) or 'none'}")
    if options.device == "cpu":
        print("A rehearsal in the interpreter: no speed was measured.")
    return 1 if failed else 0


def _run_group(options: argparse.Namespace, work: Path) -> int:
    import torch
    from bench import parts

    if options.device == "cpu":
        from bench.interpreter import correct_interpreter

        torch.set_num_threads(1)
        correct_interpreter()
    run = parts.Run(options.device, options.results, work, small=options.small)
    return 1 if run.group(options.group) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
