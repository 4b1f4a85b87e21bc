"""A device on the CPU that executes as late as a GPU may, and graphs whose replays are checked to see static tensors."""

from contextlib import nullcontext
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sluice_engine.backend.cuda.device_queue import Wait, Work
from sluice_engine.backend.cuda.graphs import Replay
from sluice_engine.core.executor import Execute, RunningStep, StepPipeline
from sluice_engine.scheduler import Plan

_CONSTANT_BYTES: Final = 8  # torch makes a tensor of a number in Python, without an operation
WATCHED_REPLAYS: Final = 4  # of each size: watching takes longer than computing


class LateQueue:
    """Executes nothing before a wait. `most`: the most steps that were in flight at once."""

    def __init__(self) -> None:
        self._work: list[Work] = []
        self._executed = self._in_flight = self.most = 0

    def put(self, work: Work) -> None:
        self._work.append(work)

    def mark(self) -> Wait:
        end = len(self._work)
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)

        def wait() -> None:
            self._in_flight -= 1
            while self._executed < end:
                work = self._work[self._executed]
                self._executed += 1
                work()

        return wait

    def stamp(self) -> Any:
        """This device has no clock."""
        return None


class ClockedQueue(LateQueue):
    """A late device with a clock: so many seconds pass before each stamp."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds, self._now = seconds, 0.0

    def stamp(self) -> "ClockStamp":
        stamp = ClockStamp()

        def read() -> None:
            self._now += self._seconds
            stamp.at = self._now

        self.put(read)
        return stamp


class ClockStamp:
    """Its time is known once the device has executed what was put before it."""

    at: float

    def since(self, earlier: "ClockStamp") -> float:
        return self.at - earlier.at


class FixedMemory:
    """A device on which so many bytes are always free, and steps hold none."""

    def __init__(self, free: int = 1 << 30) -> None:
        self.free = free

    def read(self) -> tuple[int, int]:
        return self.free, self.free

    def peak_of(self, work: Work) -> int:
        work()
        return 0


class ExternalTensors(TorchDispatchMode):
    """Notes the storages that operations read or write and that no operation inside created."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[int] = set()
        self._created: set[int] = set()
        self._kept: list[torch.Tensor] = []  # so that no address is used twice

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        given = {
            _storage(each)
            for each in tree_leaves((arguments, named))
            if isinstance(each, torch.Tensor) and each.untyped_storage().nbytes() > _CONSTANT_BYTES
        }
        self.found |= given - self._created
        result = function(*arguments, **(named or {}))
        made = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        self._created |= {_storage(each) for each in made} - given - self.found
        self._kept += made
        return result


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class CheckedCapture:
    """Captures by one plain call. `touched`: storages that the first replays of a size touched and its capture did not. As
    padding rows are greedy and have no context, these are the KV cache, and the columns of random sampling.
    """

    def __init__(self) -> None:
        self.replays = 0
        self.touched: set[int] = set()

    def __call__(self, work: Work) -> Replay:
        with ExternalTensors() as captured:
            work()

        left = WATCHED_REPLAYS

        def replay() -> None:
            nonlocal left
            with ExternalTensors() if left > 0 else nullcontext() as seen:
                work()
            if seen is not None:
                self.touched |= seen.found - captured.found
            left -= 1
            self.replays += 1

        return replay


class LatePipeline(StepPipeline):
    """A pipeline without a thread: a step is executed when its result is read, after the next one was prepared."""

    def __init__(self, runner: Any) -> None:
        self.overlapped = True
        self._runner = runner

    def begin(self, prepared: tuple[Plan, Execute], now: float) -> RunningStep:
        plan, execute = prepared
        results: list[Any] = []

        def result() -> Any:
            if not results:
                results.append(execute())
            return results[0]

        return RunningStep(plan, now, result, lambda: bool(results))
