"""Files that are mounted from a Secret and replaced while the server runs: the key file, the TLS certificate.

The kubelet replaces a whole directory at once by a symlink. The files are read again every second; if the new content
cannot be used, the last valid value stays in force, and the fault is logged once and published as a metric.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

POLL_SECONDS: Final = 1.0
MAX_BYTES: Final = 8 * 1024 * 1024

log = logging.getLogger("sluice.files")
T = TypeVar("T")
Fault = Literal["missing", "invalid"]


class FileFault(Exception):
    """The files cannot be used. The message is one sentence that names the file."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Reload(Generic[T]):
    """The outcome of one look at the files: a new value, or the fault that keeps the old one in force."""

    value: T | None = None
    fault: Fault | None = None


class MountedFiles(Generic[T]):
    """Files that together make one value."""

    def __init__(self, paths: tuple[Path, ...], make: Callable[[tuple[bytes, ...]], T]) -> None:
        """`make` returns the value of the files' contents, and raises ValueError for content that cannot be used."""
        self.paths = paths
        self._make = make
        self._last: tuple[bytes, ...] | None = None
        self._fault = ""

    def load(self) -> T:
        """Returns the value of the files. Raises FileFault."""
        contents = tuple(_read(path) for path in self.paths)
        return self._load(contents)

    def poll(self) -> Reload[T] | None:
        """Looks at the files once. Returns None if they have not changed since the last look."""
        try:
            contents = tuple(_read(path) for path in self.paths)
            if contents == self._last:
                return None
            return Reload(value=self._load(contents))
        except FileFault as error:
            self._last = None
            if str(error) == self._fault:
                return None
            self._fault = str(error)
            log.error("%s What was loaded before stays in force; the file is read again every second.", error)
            return Reload(fault=error.fault)

    def _load(self, contents: tuple[bytes, ...]) -> T:
        try:
            value = self._make(contents)
        except ValueError as error:
            raise FileFault("invalid", f"{self.paths[0]}: {str(error).rstrip('.')}.") from error
        self._last, self._fault = contents, ""
        return value


async def follow(
    files: MountedFiles[T],
    on_reload: Callable[[Reload[T]], None],
    threads: Executor,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Passes each change to `on_reload`, until cancelled. Files are parsed in a thread: thousands of keys take a while."""
    loop = asyncio.get_running_loop()
    while True:
        await sleep(POLL_SECONDS)
        reload = await loop.run_in_executor(threads, files.poll)
        if reload is not None:
            on_reload(reload)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        cause = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise FileFault("missing", f"{path}: {cause}.") from error
    if len(content) > MAX_BYTES:
        raise FileFault("invalid", f"{path}: it has more than {MAX_BYTES} bytes.")
    return content
