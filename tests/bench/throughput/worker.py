"""The child's half of a comparison: one engine in a process of its own, asked over its standard input.

Standard library only, because peers live in virtual environments that have nothing of ours. One JSON line in, one out:
first `{"ready": {...}}` when the engine is loaded, then for each `{"prompts", "max_tokens"}` the seconds that it took
and the tokens. What libraries print goes to standard error.
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

Generate = Callable[[list[list[int]], list[int]], list[list[int]]]  # prompts, tokens to generate for each → tokens

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Setup:
    """What each engine is told, and nothing else about it differs."""

    model: str  # a folder with config.json and safetensors
    dtype: str  # float32 or bfloat16: what this processor computes fastest in
    threads: int
    concurrency: int  # sequences at once at most


def serve(load: Callable[[Setup], tuple[Generate, dict[str, str]]]) -> None:
    """Load once, then answer until standard input ends. `load` also gives what is worth saying of the engine."""
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        _answer(load, answers)
    except BaseException:  # noqa: BLE001 - whatever it is ends this process, and the parent reads the log
        traceback.print_exc()
        os._exit(1)  # an engine's own threads would keep it, and the parent would wait
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
    """The parent freezes this process: if it is killed meanwhile, only the kernel can still end us."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
