"""A program of its own, because what it looks for ends in a hang: `python -m tests.engine.pool_program LIBRARY CASE`.

Exits with 0 where the compiled kernel gives the same from several threads as from one.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path

import numpy as np

from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.backend.cpu.structs import Layer, Work

ROWS, HEADS, DIM, SIZE, BLOCKS = 16, 4, 32, 16, 4
TURNS = 100


class Step:
    """One token for each of ROWS rows behind a full cache."""

    def __init__(self, kernel: NativeAttention, seed: int, threads: int) -> None:
        dice = np.random.default_rng(seed)
        self._kernel = kernel
        self._new = [dice.standard_normal((ROWS, HEADS, DIM), dtype=np.float32) for _ in range(3)]
        self._cache = [dice.standard_normal((ROWS * BLOCKS, SIZE, HEADS, DIM), dtype=np.float32) for _ in range(2)]
        last = SIZE * BLOCKS - 1
        self._work_arrays = [
            np.arange(ROWS + 1),
            np.full(ROWS, last),
            BLOCKS * np.arange(ROWS),
            np.arange(ROWS * BLOCKS),
            SIZE * BLOCKS * np.arange(ROWS) + last,
        ]
        sizes = (ROWS, ROWS, HEADS, HEADS, DIM, SIZE, 0, threads)
        self._work = Work(*sizes, *(array.ctypes.data for array in self._work_arrays))

    def attend(self) -> bytes:
        """What each row sees."""
        out = np.zeros((ROWS, HEADS, DIM), dtype=np.float32)
        query, key, value = (array.ctypes.data for array in self._new)
        strides = (HEADS * DIM, DIM)
        layer = Layer(
            query, *strides, key, value, *strides, *strides, *(array.ctypes.data for array in self._cache),
            out.ctypes.data, 0, DIM**-0.5, 0.0,
        )  # fmt: skip
        if self._kernel._attend(ctypes.byref(self._work), ctypes.byref(layer), self._kernel.level):
            raise RuntimeError("the kernel refused")
        return out.tobytes()


def at_once(kernel: NativeAttention) -> int:
    """Two Python threads, each with steps of its own on several threads."""
    wrong: list[int] = []

    def compute(seed: int, want: bytes) -> None:
        step = Step(kernel, seed, threads=3 + seed)
        wrong.extend(turn for turn in range(TURNS) if step.attend() != want)

    users = [threading.Thread(target=compute, args=(n, Step(kernel, n, threads=1).attend())) for n in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    return int(bool(wrong))


def after_fork(kernel: NativeAttention) -> int:
    """A child computes on threads of its own, though the parent has started some before."""
    step = Step(kernel, 7, threads=3)
    want = step.attend()
    child = os.fork()
    if child == 0:
        os._exit(int(any(step.attend() != want for _ in range(3))))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or int(step.attend() != want)


if __name__ == "__main__":
    case = {"at once": at_once, "after fork": after_fork}[sys.argv[2]]
    sys.exit(case(NativeAttention(1, Path(sys.argv[1]))))
