"""Runs plans on all cores; skips what the store has, and stores each result when it ends.

Tasks of earlier plans run first. The plan with the most sequential steps is therefore the first and waits only for a
free worker. Workers exit with the process that started them, however that ends. If a task or a plan raises, the results
of the tasks in progress are stored too.
"""

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from multiprocessing import connection, get_context, parent_process
from threading import Thread
from typing import Any, Final

from sluice_sim.benchmark.run.store import Store
from sluice_sim.benchmark.run.tasks import describe, key, measure
from sluice_sim.benchmark.search.clairvoyant import TaskResult

Plan = Generator[Sequence[Any], Sequence[TaskResult], Any]  # yields tasks of one kind
_UnderWay = dict[str, tuple[Future[TaskResult], Any]]


@dataclass(frozen=True, slots=True)
class TaskKind:
    """What a runner needs to know of its tasks: their key in the store, their description, and how to run one.

    `measure` is a function of a module, so that worker processes can import it."""

    key: Callable[[Any], str]
    describe: Callable[[Any], str]
    measure: Callable[[Any], TaskResult]


TRACKS: Final = TaskKind(key, describe, measure)


@dataclass(slots=True)
class _Waiting:
    """A plan, the keys of the tasks that it yielded, and its position among the plans."""

    number: int
    plan: Plan
    keys: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Runner:
    """Runs tasks in `workers` processes; 0 runs them in this process.

    `say` receives one line per finished task. `used` holds the keys of all requested results.
    """

    store: Store
    workers: int
    say: Callable[[str], None] = lambda _: None
    kind: TaskKind = field(default_factory=lambda: TRACKS)
    used: set[str] = field(default_factory=set)
    measured: int = 0
    cpu_seconds: float = 0.0

    def run(self, plans: Sequence[Plan]) -> list[Any]:
        """Run all plans to their ends and return their results in order."""
        if self.workers < 1:
            return self._drive(plans, None, {})
        under_way: _UnderWay = {}
        with worker_pool(self.workers) as pool:
            try:
                return self._drive(plans, pool, under_way)
            finally:
                pool.shutdown(cancel_futures=True)  # a plan that raised does not wait for the queued tasks
                for name, (future, task) in under_way.items():
                    if not future.cancelled() and future.exception() is None:
                        self._keep(name, task, future.result())

    def _drive(self, plans: Sequence[Plan], pool: Executor | None, under_way: _UnderWay) -> list[Any]:
        """The plans' results. `under_way` holds the tasks that are submitted to workers and not yet stored."""
        results: dict[int, Any] = {}
        waiting: list[_Waiting] = []
        asked: list[tuple[int, int, str, Any]] = []  # heap ordered by plan, then by order of request
        turn, queued = count(), set[str]()  # `queued`: keys in the heap or submitted

        def go_on(one: _Waiting, value: Sequence[TaskResult] | None) -> None:
            """Send a plan its results and queue the tasks that it yields next."""
            try:
                tasks = next(one.plan) if value is None else one.plan.send(value)
            except StopIteration as end:
                results[one.number] = end.value
                return
            one.keys = [self.kind.key(task) for task in tasks]
            self.used.update(one.keys)
            for name, task in zip(one.keys, tasks, strict=True):
                if name in self.store or name in queued:
                    continue
                if pool is None:
                    self._keep(name, task, self.kind.measure(task))
                else:
                    heappush(asked, (one.number, next(turn), name, task))
                    queued.add(name)
            waiting.append(one)

        for number, plan in enumerate(plans):
            go_on(_Waiting(number, plan), None)
        while waiting:
            ready = [one for one in waiting if all(name in self.store for name in one.keys)]
            for one in ready:
                waiting.remove(one)
                go_on(one, [self.store[name] for name in one.keys])
            if ready or not waiting:
                continue
            while pool is not None and asked and len(under_way) < self.workers:
                _, _, name, task = heappop(asked)
                under_way[name] = (pool.submit(self.kind.measure, task), task)
            done, _ = wait([future for future, _ in under_way.values()], return_when=FIRST_COMPLETED)
            for name in [name for name, (future, _) in under_way.items() if future in done]:
                future, task = under_way.pop(name)
                self._keep(name, task, future.result())
        return [results[number] for number in range(len(plans))]

    def _keep(self, name: str, task: Any, found: TaskResult) -> None:
        self.store.put(name, self.kind.describe(task), found)
        self.measured += 1
        self.cpu_seconds += float(found.get("cpu_seconds", 0.0))
        shown = ""
        if "attainment" in found:
            shown = f": {found['attainment']:.2%} at {found['gpu_hours']:.2f} GPU-hours"
        self.say(self.kind.describe(task) + shown)


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """A pool whose processes exit with this process, even if it is killed."""
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this worker when its parent ends.

    A worker holds both ends of the pipe that it reads tasks from, so the pipe does not close when the parent ends.
    """
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)  # the result of a task in progress is no longer needed
