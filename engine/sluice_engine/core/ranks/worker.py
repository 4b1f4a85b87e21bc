"""The process of a rank other than 0: `python -m sluice_engine.core.ranks.worker FD`, a socket from the engine process.

It ends with the engine process, with status 0 when the socket ends. Every fault is sent before the process ends.
"""

import logging
import os
import queue
import sys
import threading
import time
from multiprocessing.connection import Connection

from sluice import logs
from sluice.contract import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_USAGE, REASON_ENGINE_CRASHED
from sluice_engine.core.parent_process import die_with_parent
from sluice_engine.core.ranks.wire import RankFault, Start
from sluice_engine.scheduler import Plan

_log = logging.getLogger(__name__)


class Inbox:
    """The plans of rank 0, read by a thread of its own, so that rank 0 never waits to send one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._plans: queue.SimpleQueue[Plan] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="plans", daemon=True).start()

    def next_plan(self) -> Plan:
        """The next plan; waits for it."""
        return self._plans.get()

    def _read(self) -> None:
        try:
            while True:
                self._plans.put(self._connection.recv())
        except (EOFError, OSError):
            os._exit(EXIT_OK)  # the engine process has ended


class Faults:
    """Reports why this rank ends, and ends it."""

    def __init__(self, connection: Connection, rank: int) -> None:
        self._connection, self._rank = connection, rank

    def end(self, error: BaseException) -> None:
        """Send the fault. A failed operation over the ranks is left for a while to the rank that caused it."""
        from sluice_engine.backend.parallel.group import RankFailed
        from sluice_engine.core.ranks.leader import LOSS_SECONDS
        from sluice_engine.errors import StartError

        _log.error("rank %d ends", self._rank, exc_info=error)
        if isinstance(error, RankFailed):
            time.sleep(LOSS_SECONDS)
        starting = isinstance(error, StartError)
        reason = error.reason if isinstance(error, StartError) else REASON_ENGINE_CRASHED
        text = str(error) if starting else f"{type(error).__name__}: {error}."
        self._connection.send(RankFault(reason, text, starting))
        logging.shutdown()
        os._exit(EXIT_CONFIG if starting else EXIT_FAILED)


def main(arguments: list[str]) -> int:
    """Compute the plans of rank 0 until the engine process ends."""
    if len(arguments) != 1:
        sys.stderr.write(f"usage: python -m {__spec__.name} FD\n")
        return EXIT_USAGE
    die_with_parent()
    logs.configure()
    connection = Connection(int(arguments[0]))
    start: Start = connection.recv()
    inbox, faults = Inbox(connection), Faults(connection, start.rank)
    try:
        _compute(start, inbox, faults)
    except BaseException as error:  # noqa: BLE001 - includes SystemExit: a library's status is not ours
        faults.end(error)
    return EXIT_FAILED


def _compute(start: Start, inbox: Inbox, faults: Faults) -> None:
    """Load this rank's part of the model and compute plans. torch takes seconds to import, so that is done here."""
    import torch
    from torch import distributed

    from sluice_engine.backend.choose import rank_device, sharing_backend
    from sluice_engine.backend.parallel.group import TorchGroup
    from sluice_engine.core.own_process import own_process
    from sluice_engine.core.ranks.follower import follow
    from sluice_engine.core.startup import LoadedEngine

    logs.take_over("transformers", "huggingface_hub")
    options, ranks = start.options, start.options.tensor_parallel
    device = rank_device(options.device, start.rank, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with own_process(options):
        group = TorchGroup(distributed.FileStore(start.store, ranks), start.rank, ranks, device)
        backend = sharing_backend(device, group, options.attention_backend)
        loaded = LoadedEngine(options, lambda _: None, time.monotonic, backend)
    follow(loaded, inbox.next_plan, faults.end)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # skips the shutdown of torch's threads
