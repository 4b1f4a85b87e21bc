"""`make gpu` checks every compiled kernel against its reference, measures its speed, and serves with the engine. The first
three parts need torch and triton only, the others what the engine needs. No part uses the network.

`--device cpu --small` rehearses the whole script in Triton's interpreter with small shapes: its times mean nothing. Each
part runs after a failed one too. Exit codes: 0 all is right, 1 a part failed, 2 no CUDA device is visible.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results"))
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("make gpu needs a CUDA device and torch sees none here: run it on a machine with a GPU, or rehearse with "
              "make gpu DEVICE=cpu SMALL=1.", file=sys.stderr)  # fmt: skip
        return 2
    if options.device == "cpu":
        from bench.interpreter import correct_interpreter

        torch.set_num_threads(1)
        correct_interpreter()
    from bench import parts

    started, failed = time.monotonic(), []
    run = parts.Run(options.device, options.results, small=options.small)
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (*run.kernels(), *run.serving(Path(folder)), ("bars", run.judge)):
            begun = time.monotonic()
            try:
                part()
            except Exception:  # noqa: BLE001 - the next parts run all the same
                traceback.print_exc()
                failed.append(name)
            print(f"{name}: {'FAILED' if name in failed else 'done'} in {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{time.monotonic() - started:.0f} s in all; failed: {', '.join(failed) or 'none'}")
    if options.device == "cpu":
        print("A rehearsal in the interpreter: no speed was measured.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
