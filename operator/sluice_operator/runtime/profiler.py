"""Samples where the event loop's thread spends its time, as pprof does for Go programs, without a dependency.

The result is text in the folded format of flame graphs (Gregg, "The Flame Graph", CACM 2016), which speedscope and
flamegraph.pl read: one line per call stack, its frames separated by `;`, then the number of samples.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

SAMPLES_PER_SECOND: Final = 100.0
MOST_SECONDS: Final = 60.0


def profile(
    seconds: float,
    thread: int,
    *,
    frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Sample a thread for some seconds and return the folded stacks, the most frequent first.

    It blocks, so it runs in a thread of its own. `thread` is a `threading.get_ident()`.
    """
    stacks: Counter[str] = Counter()
    end = clock() + seconds
    while clock() < end:
        if (frame := frames().get(thread)) is not None:
            stacks[folded(frame)] += 1
        sleep(1 / SAMPLES_PER_SECOND)
    return "".join(f"{stack} {count}\n" for stack, count in stacks.most_common())


def folded(frame: FrameType | None) -> str:
    """The call stack of a frame, the outermost call first."""
    names = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).name}:{code.co_qualname}")
        frame = frame.f_back
    return ";".join(reversed(names))


def this_thread() -> int:
    """The identity of the calling thread, for `profile`."""
    return threading.get_ident()
