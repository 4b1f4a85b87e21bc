"""The child side of a comparison: one engine in a process of its own, driven over its standard input.

It uses the standard library only, because peers run in virtual environments without this project. It reads and writes
one JSON line per message: first `{"ready": {...}}` when the engine is loaded, then for each `{"prompts", "max_tokens"}`
the seconds and the tokens. Output of libraries goes to standard error.
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

Generate = Callable[[list[list[int]], list[int]], list[list[int]]]  # prompts, output tokens of each → tokens

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of an engine; all engines get the same."""

    model: str  # a folder with config.json and safetensors
    dtype: str  # float32 or bfloat16, whichever this processor computes faster
    threads: int
    concurrency: int  # most concurrent sequences


def serve(load: Callable[[Setup], tuple[Generate, dict[str, str]]]) -> None:
    """Load once, then answer until standard input ends. `load` also returns a description of the engine."""
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        _answer(load, answers)
    except BaseException:  # noqa: BLE001 - any error ends this process, and the parent reads the log
        traceback.print_exc()
        os._exit(1)  # an engine's own threads would keep the process alive, and the parent would wait
    os._exit(0)


def _answer(load: Callable[[Setup], tuple[Generate, dict[str, str]]], answers: TextIO) -> None:
    generate, about = load(Setup(**json.loads(sys.argv[1])))
    print(json.dumps({"ready": about}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.perf_counter()
        tokens = generate(asked["prompts"], asked["max_tokens"])
        seconds = time.perf_counter() - begun
        print(json.dumps({"seconds": seconds, "tokens": tokens}), file=answers)


def _end_with_parent() -> None:
    """Let the kernel kill this process with its parent: while it is stopped, it cannot notice the parent's death."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
