"""`python -m sluice_engine.backend.cuda.precompile`: compiles what the known models launch before they are ready.

The kernels go to TRITON_CACHE_DIR, with an engine's default options. No GPU is involved.
"""

import argparse
import logging
import sys
import time

import torch

from sluice_engine.backend.cuda.precompile.recorded import warm_up_launches
from sluice_engine.backend.cuda.precompile.sizes import KNOWN
from sluice_engine.config import EngineOptions
from sluice_kernels.launch import MULTIPROCESSORS
from sluice_kernels.precompile import precompile

_log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="precompile", description=__doc__)
    parser.add_argument("--model", choices=KNOWN, action="append", help="default: all")
    parser.add_argument(
        "--architecture", type=int, choices=MULTIPROCESSORS, action="append", help="90 for sm_90; default: 80, 90, 100"
    )
    given = parser.parse_args(arguments)
    options = EngineOptions(model="", served_name="")
    for architecture in given.architecture or (80, 90, 100):
        for name in given.model or KNOWN:
            started = time.monotonic()
            count = precompile(warm_up_launches(KNOWN[name], architecture, options), architecture)
            _log.info("%s, sm_%d: %d kernels, %.0f s", name, architecture, count, time.monotonic() - started)
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
