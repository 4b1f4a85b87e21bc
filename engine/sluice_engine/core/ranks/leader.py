"""Starts the processes of ranks 1, 2, … from the engine process, gives them its plans, and notices the end of each."""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec
import torch
from torch import distributed

from sluice.contract import REASON_ENGINE_CRASHED
from sluice.models.tensor_parallel import sizes_of
from sluice_engine.backend.base import Backend
from sluice_engine.backend.choose import rank_device, sharing_backend
from sluice_engine.backend.parallel.group import RankFailed, TorchGroup
from sluice_engine.backend.parallel.shard import share_of
from sluice_engine.backend.resources import processors
from sluice_engine.config import EngineOptions
from sluice_engine.core.ranks.wire import RankFault, Start
from sluice_engine.scheduler import Plan

WORKER: Final = "sluice_engine.core.ranks.worker"
# An operation over all ranks fails as soon as one of them ends, often before its socket is found closed.
LOSS_SECONDS: Final = 10.0
# Without it the libraries choose an interface by the host's name, which a pod may not resolve to itself.
_INTERFACE: Final = {"NCCL_SOCKET_IFNAME": "lo"}

OnLost = Callable[[RankFault], None]  # called once, by a thread of its own
_log = logging.getLogger(__name__)


class RankProcesses:
    """The other ranks of an engine process. `options` are those of every rank."""

    def __init__(self, options: EngineOptions, folder: Path, on_lost: OnLost) -> None:
        """`folder`: where the ranks find each other; its owner removes it.

        Raises AcceleratorNotFound if fewer GPUs are visible than ranks, and InvalidOption for ranks that cannot share
        the model, before any process is started.
        """
        _check_sizes(options)
        self._device = rank_device(options.device, 0, options.tensor_parallel)
        self.options = _with_threads(options, self._device)
        self._on_lost = on_lost
        self._reporting, self._reported = threading.Lock(), threading.Event()
        self._store = folder / "ranks"
        os.environ.update(_INTERFACE)
        self._connections = [self._started(rank) for rank in range(1, options.tensor_parallel)]

    def backend(self) -> Backend:
        """The backend of rank 0. It blocks until all ranks have joined."""
        ranks = self.options.tensor_parallel
        store = distributed.FileStore(str(self._store), ranks)
        group = TorchGroup(store, 0, ranks, self._device)
        return sharing_backend(self._device, group, self.options.attention_backend)

    def broadcast(self, plan: Plan) -> None:
        """Give a plan to the other ranks. Raises RankFailed."""
        try:
            for connection in self._connections:
                connection.send(plan)
        except OSError as error:
            raise RankFailed("a plan could not be given to another rank") from error

    @contextlib.contextmanager
    def loss_first(self) -> Iterator[None]:
        """An operation that failed because a rank has ended is reported as that: `on_lost` is called before the error is
        raised, and may end the process.
        """
        try:
            yield
        except RankFailed:
            self._reported.wait(LOSS_SECONDS)
            raise

    def _started(self, rank: int) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(theirs.fileno())], pass_fds=[theirs.fileno()], close_fds=True
            )
        connection = Connection(ours.detach())
        connection.send(Start(rank, str(self._store), self.options))
        watch = threading.Thread(target=self._watch, args=(rank, process, connection), name=f"rank-{rank}", daemon=True)
        watch.start()
        return connection

    def _watch(self, rank: int, process: "subprocess.Popen[bytes]", connection: Connection) -> None:
        """Wait for the end of a rank, and report the first one that ends."""
        fault: RankFault | None = None
        with contextlib.suppress(EOFError, OSError):
            fault = connection.recv()
        name = f"Rank {rank} of {self.options.tensor_parallel} (process {process.pid})"
        if fault is None:
            ended = RankFault(REASON_ENGINE_CRASHED, f"{name} ended: {_how(process.wait())}.", starting=False)
        else:
            ended = RankFault(fault.reason, f"{name} failed: {fault.text}", fault.starting)
        _log.critical("%s", ended.text)
        with self._reporting:
            if not self._reported.is_set():
                self._on_lost(ended)
            self._reported.set()


def _check_sizes(options: EngineOptions) -> None:
    """Raises InvalidOption. A config that cannot be read or lacks the sizes is left to the loader, which names its fault."""
    try:
        config = json.loads((Path(options.model).expanduser() / "config.json").read_text())
    except (OSError, ValueError):
        return
    if isinstance(config, dict) and sizes_of(config) is not None:
        share_of(config, 0, options.tensor_parallel)


def _with_threads(options: EngineOptions, device: torch.device) -> EngineOptions:
    """On a CPU the ranks share the processors."""
    if device.type == "cuda" or options.threads is not None:
        return options
    return msgspec.structs.replace(options, threads=max(1, processors() // options.tensor_parallel))


def _how(status: int) -> str:
    """How a process ended, from its status."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
