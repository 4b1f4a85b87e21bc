"""The download's own process: `python -m sluice_engine.sources.worker`, with a `Task` as JSON in its first argument.

A process of its own can be ended at any moment, which a blocked read of a library cannot, and the settings of the client
libraries stay in it. It writes one JSON object per line to its output: progress every REPORT_SECONDS, at last the folder
or the error. It ends with its parent, at the end of its input.
"""

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sluice import contract, logs
from sluice.contract import EXIT_FAILED, EXIT_OK
from sluice.models.uri import HubModel, RemoteModel, S3Model, parse_uri
from sluice_engine.sources import cache, snapshot
from sluice_engine.sources.cache import PART, Entry
from sluice_engine.sources.errors import SourceError, disk_full, stalled, write_failed
from sluice_engine.sources.lease import RENEWALS, Lease, LeaseLost
from sluice_engine.sources.memory import check_memory
from sluice_engine.sources.messages import Failure, FromWorker, MemoryPlan, Result, State, Task
from sluice_engine.sources.snapshot import RemoteFile, Snapshot

FILES_AT_ONCE: Final = 4
REPORT_SECONDS: Final = 0.5

log = logging.getLogger("sluice.fetch")


class Source(Protocol):
    """One model of a hub or a bucket. Its methods raise SourceError."""

    def resolve(self) -> Snapshot:
        """The revision that the URI names now, and its files."""

    def download(self, snapshot: Snapshot, file: RemoteFile, part: Path) -> None:
        """Continues `part` until it holds the whole file."""

    def head(self, snapshot: Snapshot, file: RemoteFile, size: int) -> bytes:
        """The first `size` bytes of a file, or the whole shorter one."""


class Watch:
    """A thread that reports the progress, renews the lease, and ends the process when the transfer stalls."""

    def __init__(self, task: Task, send: Callable[[FromWorker], None]) -> None:
        self._task = task
        self._send = send
        self._lock = threading.Lock()
        self._entry: Entry | None = None
        self._total = 0
        self._checked = 0  # bytes whose hash was computed: progress too
        self._lease: Lease | None = None
        self._last: tuple[int, int] | None = None
        self._last_at = 0.0

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def measure(self, entry: Entry, total: int) -> None:
        """Reports the progress of this entry from now on."""
        with self._lock:
            self._entry, self._total = entry, total

    def downloading(self, lease: Lease) -> None:
        """Renews the lease from now on, and expects data."""
        with self._lock:
            self._lease, self._last_at = lease, time.monotonic()

    def finish(self) -> None:
        """Releases the lease, if it is held."""
        with self._lock:
            if self._lease is not None:
                self._lease.release()
                self._lease = None

    def checked(self, size: int) -> None:
        """Adds bytes whose hash was computed."""
        self._checked += size

    def _run(self) -> None:
        while True:
            with self._lock:
                failure = self._tick()
            if failure is not None:
                self.finish()
                self._send(failure)
                os._exit(EXIT_FAILED)
            time.sleep(min(REPORT_SECONDS, self._task.lease_seconds / RENEWALS))

    def _tick(self) -> Failure | None:
        received = 0 if self._entry is None else cache.received_bytes(self._entry)
        self._send(State(received, self._total))
        if self._lease is None:
            return None
        try:
            self._lease.renew()
        except LeaseLost:
            text = "Another process took the download over, because this one was suspended."
            return Failure(contract.REASON_DOWNLOAD_FAILED, text, transient=True)
        except OSError as error:
            return failure_of(write_failed(self._task.cache_folder, error))
        now = time.monotonic()
        if (received, self._checked) != self._last:
            self._last, self._last_at = (received, self._checked), now
        elif now - self._last_at >= self._task.stall_seconds:
            return failure_of(stalled(self._task.uri, self._task.stall_seconds))
        return None


def run(task: Task, watch: Watch) -> Result:
    """Downloads the model of the task, unless the cache has it. Raises SourceError."""
    uri = parse_uri(task.uri)
    if not isinstance(uri, HubModel | S3Model):
        raise TypeError(f"{task.uri} is on this machine")
    folder = task.cache_folder
    if (entry := _without_network(folder, uri)) is not None:
        return _result(entry)
    source = source_of(uri)
    try:
        found = source.resolve()
    except SourceError as error:
        last = cache.recall(folder, uri)
        if error.transient and last is not None and cache.is_complete(known := cache.entry_of(folder, uri, last)):
            log.warning("%s The revision %s of the cache is used.", error, last)
            return _result(known)
        raise
    entry = cache.entry_of(folder, uri, found.revision)
    watch.measure(entry, found.total_bytes)
    try:
        entry.root.mkdir(parents=True, exist_ok=True)
        if not cache.is_complete(entry):
            _download_once(source, uri, found, entry, watch, task)
    except OSError as error:
        raise write_failed(folder, error) from error
    _remember(folder, uri, found.revision)
    return _result(entry)


def _remember(folder: Path, uri: RemoteModel, revision: str) -> None:
    """Records the revision for a start without a network. A complete model is served from a cache that cannot be written."""
    if cache.recall(folder, uri) == revision:
        return
    try:
        cache.remember(folder, uri, revision)
    except OSError as error:
        log.warning("A start without a network will not find %s: %s", uri, write_failed(folder, error))


def source_of(uri: RemoteModel) -> Source:
    """The client of the model's source; each library is imported only for its own kind of URI."""
    if isinstance(uri, HubModel):
        from sluice_engine.sources.hub import Hub

        return Hub(uri)
    from sluice_engine.sources.bucket import Bucket

    return Bucket(uri)


def _without_network(folder: Path, uri: RemoteModel) -> Entry | None:
    """The complete model of a URI that names a commit, which never changes."""
    if isinstance(uri, HubModel) and uri.revision and len(uri.revision) == 40:
        entry = cache.entry_of(folder, uri, uri.revision)
        return entry if cache.is_complete(entry) else None
    return None


def _result(entry: Entry) -> Result:
    return Result(str(entry.folder), entry.revision)


def _download_once(source: Source, uri: RemoteModel, found: Snapshot, entry: Entry, watch: Watch, task: Task) -> None:
    """Downloads the model under the lease, or waits until another process has done so."""
    lease = Lease(entry.lease, task.lease_seconds)
    while not lease.try_acquire():
        time.sleep(min(REPORT_SECONDS, task.lease_seconds / 4))
        if cache.is_complete(entry):
            return
    watch.downloading(lease)
    try:
        if not cache.is_complete(entry):
            cache.reopen(entry)
            cache.publish(entry, uri, _download(source, found, entry, watch, task.memory))
    finally:
        watch.finish()


def _download(source: Source, found: Snapshot, entry: Entry, watch: Watch, memory: MemoryPlan | None) -> dict[str, str]:
    """Completes the files of the partial folder. Returns the SHA-256 of each."""
    entry.partial.mkdir(exist_ok=True)
    _discard_others(entry, found)
    missing, free = found.total_bytes - cache.received_bytes(entry), shutil.disk_usage(entry.partial).free
    if missing > free:
        raise disk_full(entry.partial, missing, free)

    def complete(file: RemoteFile) -> str:
        path = entry.partial / file.name
        if not path.is_file():
            part = path.with_name(path.name + PART)
            part.parent.mkdir(parents=True, exist_ok=True)
            source.download(found, file, part)
            return _accept(found, file, part, path, watch)
        return cache.sha256_of(path, watch.checked)

    texts = [file for file in found.files if file.name == snapshot.CONFIG]
    hashes = {file.name: complete(file) for file in texts}
    for file in texts:
        config = (entry.partial / file.name).read_bytes()
        snapshot.check_config(found.uri, config)
        if memory is not None:
            check_memory(source, found, config, memory)
    others = [file for file in found.files if file not in texts]
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="file") as pool:
        hashes |= dict(zip((file.name for file in others), pool.map(complete, others), strict=True))
    return hashes


def _discard_others(entry: Entry, found: Snapshot) -> None:
    """Removes what does not belong to the snapshot: files of another size, and those of an older listing."""
    sizes = {file.name: file.size for file in found.files}
    parts = {name + PART for name in sizes}
    for path in cache.files_in(entry.partial):
        name = path.relative_to(entry.partial).as_posix()
        if name not in parts and path.stat().st_size != sizes.get(name):
            path.unlink()


def _accept(found: Snapshot, file: RemoteFile, part: Path, path: Path, watch: Watch) -> str:
    """Renames a finished part to its file once it is on disk and is what the source announced. Returns its SHA-256."""
    digest = cache.sha256_of(part, watch.checked)
    if part.stat().st_size != file.size or (file.sha256 is not None and digest != file.sha256):
        part.unlink()
        raise SourceError(
            contract.REASON_DOWNLOAD_CORRUPT,
            f"{file.name} of {found.uri} does not have the announced content (SHA-256 {file.sha256}). It is discarded "
            f"and fetched again; if this repeats, check the mirror.",
            transient=True,
        )
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.rename(path)
    return digest


def failure_of(error: SourceError) -> Failure:
    """The error as a message."""
    return Failure(error.reason, error.message, error.transient, error.retry_after)


def _end_with_parent(watch: Watch) -> None:
    sys.stdin.buffer.read()
    watch.finish()
    os._exit(EXIT_FAILED)


def main(arguments: list[str]) -> int:
    """Runs one task. The exit status is EXIT_OK if the model is in the cache."""
    # The library reads these when it is imported. Xet transfers do not continue after a kill, plain HTTP does.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    logs.configure()
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # else a line per request
    task = msgspec.json.decode(arguments[0], type=Task)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library's print must not look like a message
    writing = threading.Lock()

    def send(message: FromWorker) -> None:
        with writing:
            output.write(msgspec.json.encode(message) + b"\n")
            output.flush()

    watch = Watch(task, send)
    threading.Thread(target=_end_with_parent, args=(watch,), name="parent", daemon=True).start()
    watch.start()
    try:
        send(run(task, watch))
    except SourceError as error:
        send(failure_of(error))
        return EXIT_FAILED
    except Exception:
        log.exception("the download of %s ended by a fault of this program", task.uri)
        watch.finish()
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # threads of a client library may still wait for their server
