"""Puts a model that is made on this machine into the cache: one process makes it, others wait, readers see it whole."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sluice.models.uri import LocalModel
from sluice_engine.sources.cache import Entry, is_complete, publish, sha256_of
from sluice_engine.sources.errors import write_failed
from sluice_engine.sources.lease import EXPIRY_SECONDS, RENEWALS, Lease, LeaseLost

ORIGIN: Final = ".sluice-origin.json"
WAIT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model came from, beside its URI."""

    source: str
    licence: str | None


def make_once(entry: Entry, name: str, make: Callable[[Path], Origin]) -> Path:
    """The folder of the entry; `make` fills a new folder unless another process has done so, or does so now.

    The entry is listed as `name`. Raises what `make` raises, and SourceError if the cache cannot be written.
    """
    try:
        entry.root.mkdir(parents=True, exist_ok=True)
        lease = Lease(entry.lease)
        while not is_complete(entry):
            if lease.try_acquire():
                with _renewed(lease):
                    if not is_complete(entry):
                        _make(entry, name, make)
            else:
                time.sleep(WAIT_SECONDS)
    except OSError as error:
        raise write_failed(entry.root, error) from error
    return entry.folder


def read_origin(folder: Path) -> Origin | None:
    """The origin that was recorded with the model; None for a download of a hub or bucket, or an unreadable record."""
    with suppress(OSError, ValueError, TypeError):
        return Origin(**json.loads((folder / ORIGIN).read_text("utf-8")))
    return None


def _make(entry: Entry, name: str, make: Callable[[Path], Origin]) -> None:
    for old in (entry.partial, entry.folder):  # of a process that was killed, or damaged since
        shutil.rmtree(old, ignore_errors=True)
    try:
        origin = make(entry.partial)
        (entry.partial / ORIGIN).write_text(json.dumps(asdict(origin)))
        files = [path for path in entry.partial.rglob("*") if path.is_file()]
        hashes = {path.relative_to(entry.partial).as_posix(): sha256_of(path) for path in files}
        publish(entry, LocalModel(Path(name)), hashes)
    finally:
        shutil.rmtree(entry.partial, ignore_errors=True)


@contextmanager
def _renewed(lease: Lease) -> Iterator[None]:
    """Renews the lease in a thread; releases it at the end."""
    ended = threading.Event()

    def renew() -> None:
        with suppress(LeaseLost, OSError):  # the model is then made twice, and the second rename fails
            while not ended.wait(EXPIRY_SECONDS / RENEWALS):
                lease.renew()

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        lease.release()
