"""The targets file holds the spec's SLO targets and admission range, so that they reach the engine without an operator.

The file is mounted from a ConfigMap and polled while the server runs. Its values never expire; `PATCH /limits`
overrides them for a TTL. If the file cannot be read or has an invalid value, one warning is logged and the last valid
values stay in force.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
import orjson

from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.server.api.limits import parse_targets
from sluice_engine.server.errors import BadRequest
from sluice_engine.server.metrics import starting_limits

POLL_SECONDS: Final = 1.0  # the file has some 100 bytes; the kubelet takes up to a minute to update it
MAX_BYTES: Final = 65_536

log = logging.getLogger("sluice.targets")


class TargetsFile:
    """Holds the last valid content of the file. Without a path, the targets are always those of the options."""

    def __init__(self, path: Path | None, options: EngineOptions, read: Callable[[Path], bytes] | None = None) -> None:
        """`options` are the defaults for absent fields; `read` returns the file's bytes or raises OSError or
        ValueError.
        """
        self._path = path
        self._read = read or read_bounded
        self._limits = starting_limits(options)
        self._most = options.max_num_seqs
        self._seen: bytes | None = None
        self._fault = ""
        self.targets = parse_targets({}, self._limits, self._most)

    def options(self, started: EngineOptions) -> EngineOptions:
        """Returns `started` with these targets."""
        return msgspec.structs.replace(started, **msgspec.structs.asdict(self.targets))

    def poll(self) -> bool:
        """Reads the file. Returns True if the targets changed."""
        if self._path is None:
            return False
        try:
            content = self._read(self._path)
            if content == self._seen:
                return False
            found = parse_targets(orjson.loads(content), self._limits, self._most)
        except (OSError, ValueError, BadRequest) as error:
            self._warn(self._path, str(error).rstrip("."))
            return False
        self._seen, self._fault = content, ""
        moved, self.targets = found != self.targets, found
        if moved:
            log.info(
                "targets of %s: TTFT %g s, ITL %g s, concurrency %d to %d",
                self._path, found.ttft_target, found.itl_target, found.concurrency_min, found.concurrency_max,
            )  # fmt: skip
        return moved

    def _warn(self, path: Path, fault: str) -> None:
        """Logs each fault once, because the file is read every second."""
        self._seen = None
        if fault != self._fault:
            self._fault = fault
            log.warning(
                "%s: %s. The targets in force stay; correct the file, it is read again every second.", path, fault
            )


async def follow(
    file: TargetsFile,
    taken: Callable[[messages.Targets], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Passes each change of the file to `taken`, until cancelled."""
    while True:
        await sleep(POLL_SECONDS)
        if file.poll():
            taken(file.targets)


def read_bounded(path: Path) -> bytes:
    """Returns the bytes of a file of at most MAX_BYTES. Raises OSError, and ValueError for a longer file."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return content
