"""The ranks of a model as threads of the test's process, joined by gloo as processes are."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed

from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.parallel.group import Group, TorchGroup
from sluice_engine.config import EngineOptions
from sluice_engine.core.engine import EngineLoop
from sluice_engine.core.ranks.follower import follow
from sluice_engine.core.startup import LoadedEngine
from sluice_engine.scheduler import Plan
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.oracle import options

CPU = torch.device("cpu")
T = TypeVar("T")


class Inboxes:
    """The other ranks, whose ends are no processes. None ends them."""

    def __init__(self, inboxes: "list[queue.SimpleQueue[Plan | None]]") -> None:
        self._inboxes = inboxes

    def broadcast(self, plan: Plan | None) -> None:
        for inbox in self._inboxes:
            inbox.put(plan)

    def loss_first(self) -> AbstractContextManager[None]:
        return nullcontext()


def on_ranks(ranks: int, work: Callable[[Group], T]) -> list[T]:
    """The results of `work` on each rank. Raises the first error."""
    store = distributed.HashStore()
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(TorchGroup(store, rank, ranks, CPU))
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return [results[rank] for rank in range(ranks)]


@contextmanager
def sharded_engine(folder: Path, ranks: int, **changes: object) -> Iterator[EngineLoop]:
    """An engine whose model is shared by so many ranks. Raises what its start raises, and what another rank raised."""
    given = options(folder, tensor_parallel=ranks, max_num_seqs=8, **changes)
    store = distributed.HashStore()
    inboxes: list[queue.SimpleQueue[Plan | None]] = [queue.SimpleQueue() for _ in range(ranks - 1)]
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=_follow, args=(given, store, rank, inbox, errors))
        for rank, inbox in enumerate(inboxes, start=1)
    ]
    for thread in threads:
        thread.start()

    others = Inboxes(inboxes)
    try:
        group = TorchGroup(store, 0, ranks, CPU)
        yield EngineLoop(given, backend=CudaBackend(CPU, FixedMemory(), group=group), others=others)
    finally:
        others.broadcast(None)
        for thread in threads:
            thread.join()
    for error in errors:
        raise error


def _follow(
    given: EngineOptions,
    store: distributed.Store,
    rank: int,
    inbox: "queue.SimpleQueue[Plan | None]",
    errors: list[BaseException],
) -> None:
    try:
        backend = CudaBackend(CPU, FixedMemory(), group=TorchGroup(store, rank, given.tensor_parallel, CPU))
        loaded = LoadedEngine(given, lambda _: None, lambda: 0.0, backend)
        follow(loaded, inbox.get, errors.append)
    except BaseException as error:  # noqa: BLE001 - raised by the test's thread
        errors.append(error)
