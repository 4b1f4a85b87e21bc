"""What a piece of code costs, counted in Python function calls or instructions: the same on every machine, busy or not."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_calls(work: Callable[[], object]) -> int:
    """Python functions that `work` calls, itself included."""
    count = 0

    def see(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def count_instructions(work: Callable[[], object]) -> int:
    """Bytecode instructions that `work` runs: a loop counts each time round, one inside a C function does not."""
    count = 0

    def see(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
