"""One replayable graph per batch size of decode steps, captured before the engine is ready."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch

from sluice_engine.backend.cuda.device_queue import Work

Replay = Callable[[], None]
Capture = Callable[[Work], Replay]

_log = logging.getLogger(__name__)
_SPACING = 8


def graph_sizes(max_num_seqs: int) -> list[int]:
    """1, 2, 4, 8, then every 8 up to `max_num_seqs`, which is the last."""
    sizes = [size for size in (1, 2, 4) if size < max_num_seqs]
    return [*sizes, *range(_SPACING, max_num_seqs, _SPACING), max_num_seqs]


class DecodeGraphs:
    """`body(size)` as graphs of these sizes. The largest is captured first, so that smaller ones reuse its memory.

    A size whose capture fails runs eagerly; the log says so once.
    """

    def __init__(self, body: Callable[[int], None], sizes: Sequence[int], capture: Capture) -> None:
        self._sizes = sorted(sizes)
        self._replays: dict[int, Replay] = {}
        self.eager: list[int] = []
        for size in reversed(self._sizes):
            work = partial(body, size)
            try:
                self._replays[size] = capture(work)
            except Exception as error:  # noqa: BLE001 - the step can run without its graph
                if not self.eager:
                    _log.warning("decode steps of %d rows run without a graph: %s", size, error)
                self.eager.append(size)
                self._replays[size] = work

    def size_for(self, rows: int) -> int:
        """The smallest size that holds so many rows."""
        return next(size for size in self._sizes if size >= rows)

    def replay(self, size: int) -> None:
        """Run the graph of this size on the current content of its buffers."""
        self._replays[size]()


def run_eagerly(work: Work) -> Replay:
    """The capture of a device without graphs: each replay calls the body."""
    return work


class CudaCapture:
    """Captures CUDA graphs into one memory pool, which the first capture makes. `other_threads`: threads of a library use
    CUDA meanwhile, as NCCL's do.
    """

    def __init__(self, *, other_threads: bool = False) -> None:
        self._mode = "thread_local" if other_threads else "global"

    @cached_property
    def _pool(self) -> tuple[int, int]:
        handle: tuple[int, int] = torch.cuda.graph_pool_handle()
        return handle

    def __call__(self, work: Work) -> Replay:
        """Capture after one plain call, which compiles the kernels and allocates their workspaces."""
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode=self._mode):
            work()
        replay: Replay = graph.replay
        return replay
