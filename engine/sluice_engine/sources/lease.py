"""A lease on a folder of a shared volume: one process downloads a model, the others wait for it.

A lease is a file that its owner rewrites every few seconds. Locks of the kernel are not used: on NFS `flock` may be local
to one node or fail, and process ids mean nothing across pods. As with Kubernetes' leader election, a waiter compares the
file only with what it read before, by its own clock, so clocks of nodes may differ. Each takeover creates the next
generation exclusively; an owner that finds a newer generation has lost the lease and stops.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

EXPIRY_SECONDS: Final = 30.0  # without a renewal for this long, the owner counts as dead
RENEWALS: Final = 6  # per EXPIRY_SECONDS


class LeaseLost(Exception):
    """Another process has taken the lease over, because this one did not renew it in time."""


class Lease:
    """A lease at `path`; its generations are `path.1`, `path.2`, … Not thread-safe."""

    def __init__(self, path: Path, expiry: float = EXPIRY_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._expiry = expiry
        self._clock = clock
        self._owner = uuid.uuid4().hex
        self._renewals = 0
        self._renewed_at = 0.0
        self._generation: int | None = None  # of this process; None while it does not hold the lease
        self._seen: tuple[int, bytes] | None = None
        self._seen_at = 0.0

    def try_acquire(self) -> bool:
        """True if this process now holds the lease. Call it again every second or so until then.

        Raises OSError if the folder cannot be written.
        """
        newest = self._newest()
        if newest is None:
            return self._create(1)
        with contextlib.suppress(FileNotFoundError):  # released in between
            found = (newest, self._file(newest).read_bytes())
            if found != self._seen:
                self._seen, self._seen_at = found, self._clock()
            elif self._clock() - self._seen_at >= self._expiry:
                return self._create(newest + 1)
        return False

    def renew(self) -> None:
        """Proves that the owner is alive; writes at most RENEWALS times per expiry. Raises LeaseLost, OSError."""
        if self._generation is None or self._clock() - self._renewed_at < self._expiry / RENEWALS:
            return
        if self._newest() != self._generation:
            self._generation = None
            raise LeaseLost
        self._renewals += 1
        self._renewed_at = self._clock()
        self._file(self._generation).write_bytes(self._content())

    def release(self) -> None:
        """Gives the lease back; does nothing if this process does not hold it."""
        if self._generation is not None:
            self._file(self._generation).unlink(missing_ok=True)
            self._generation = None

    def _create(self, generation: int) -> bool:
        try:
            descriptor = os.open(self._file(generation), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._content())
        except OSError:  # without room for it, the file has no owner, and the next attempt would wait until it expires
            self._file(generation).unlink(missing_ok=True)
            raise
        self._generation, self._renewed_at = generation, self._clock()
        for older in self._generations():
            if older < generation:
                self._file(older).unlink(missing_ok=True)
        if self._newest() != generation:
            self.release()
            return False
        return True

    def _content(self) -> bytes:
        return f"{self._owner} {self._renewals}".encode()

    def _newest(self) -> int | None:
        return max(self._generations(), default=None)

    def _generations(self) -> list[int]:
        names = (
            path.name.removeprefix(f"{self._path.name}.") for path in self._path.parent.glob(f"{self._path.name}.*")
        )
        return [int(name) for name in names if name.isdecimal()]

    def _file(self, generation: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{generation}")
