"""`fetch` brings a model to this machine: the one function that the server and the command line call."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sluice import contract
from sluice.models.uri import ClaimModel, LocalModel, UriInvalid, parse_uri
from sluice_engine.sources.cache import default_cache
from sluice_engine.sources.errors import SourceError, write_failed
from sluice_engine.sources.lease import EXPIRY_SECONDS
from sluice_engine.sources.messages import Failure, FromWorker, MemoryPlan, Result, State, Task
from sluice_engine.sources.progress import Progress

ATTEMPTS: Final = 5  # of a download with transient errors
LONGEST_WAIT: Final = 60.0  # seconds between two attempts, unless the server asks for more
STALL_SECONDS: Final = 60.0  # without a chunk (256 KiB) for this long, the transfer is ended and continued
KILL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model on this machine: its folder (or GGUF file), and the revision of a remote one."""

    folder: Path
    revision: str | None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a download waits."""

    stall_seconds: float = STALL_SECONDS
    lease_seconds: float = EXPIRY_SECONDS
    attempts: int = ATTEMPTS


class FetchStopped(Exception):
    """`stop` was set before the model was complete. The next call continues."""


def fetch(
    uri: str,
    cache: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    patience: Patience = Patience(),
    stop: threading.Event | None = None,
    memory: MemoryPlan | None = None,
) -> Fetched:
    """Returns the model that `uri` names, after downloading it into the cache if it is remote and not there yet.

    cache: default_cache() if None. on_progress: called about twice per second, also while another process downloads the
    same model. stop: set by another thread to end the call within a second. memory: what the model must fit; one that
    certainly does not is refused before its weights are downloaded.

    Transient errors are retried `patience.attempts` times. Raises SourceError, FetchStopped.
    """
    try:
        parsed = parse_uri(uri)
    except UriInvalid as error:
        raise SourceError(contract.REASON_INVALID_OPTION, str(error)) from error
    if isinstance(parsed, ClaimModel):
        raise SourceError(
            contract.REASON_INVALID_OPTION, f"{uri} exists only in a cluster; name a folder of this machine instead."
        )
    if isinstance(parsed, LocalModel):
        if not parsed.path.exists():
            raise SourceError(contract.REASON_MODEL_NOT_FOUND, f"There is no model at {parsed.path}: no such folder.")
        return Fetched(parsed.path, None)
    folder = default_cache() if cache is None else cache
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failed(folder, error) from error
    stop = threading.Event() if stop is None else stop
    task = Task(str(parsed), str(folder), patience.stall_seconds, patience.lease_seconds, memory)
    return _with_retries(task, patience.attempts, on_progress or (lambda _: None), stop)


def _with_retries(task: Task, attempts: int, on_progress: Callable[[Progress], None], stop: threading.Event) -> Fetched:
    failed = 0
    while True:
        try:
            return _attempt(task, on_progress, stop)
        except SourceError as error:
            failed += 1
            if not error.transient or failed >= attempts:
                raise
            if stop.wait(retry_seconds(failed, error.retry_after)):
                raise FetchStopped from error


def retry_seconds(failed: int, retry_after: float | None) -> float:
    """Seconds until the next attempt after `failed` failed ones: doubled each time, ± 20 %, and never sooner than the
    server asked.
    """
    wait = min(2.0 ** (failed - 1), LONGEST_WAIT) * random.uniform(0.8, 1.2)
    return max(wait, retry_after or 0.0)


def _attempt(task: Task, on_progress: Callable[[Progress], None], stop: threading.Event) -> Fetched:
    """Runs the download's process once."""
    command = [sys.executable, "-m", "sluice_engine.sources.worker", msgspec.json.encode(task).decode()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for line in process.stdout or ():
            match msgspec.json.decode(line, type=FromWorker):
                case State(received, total):
                    on_progress(Progress(received, total))
                case Result(folder, revision):
                    return Fetched(Path(folder), revision)
                case Failure(reason, message, transient, retry_after):
                    raise SourceError(reason, message, transient=transient, retry_after=retry_after)
            if stop.is_set():
                raise FetchStopped
        raise SourceError(
            contract.REASON_DOWNLOAD_FAILED,
            f"The process that downloads {task.uri} ended with status {process.wait()}; see the log. The download "
            f"continues where it stopped.",
            transient=True,
        )
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Closes the process's input, at whose end it releases its lease and exits; kills it if it does not."""
    with process:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
