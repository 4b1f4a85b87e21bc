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

import orjson

from sluice_engine.config import EngineOptions
from sluice_engine.limits import Limits
from sluice_engine.server.api.limits import parse_targets
from sluice_engine.server.errors import BadRequest

POLL_SECONDS: Final = 1.0  # the file has some 100 bytes; the kubelet takes up to a minute to update it
MAX_BYTES: Final = 65_536

log = logging.getLogger("sluice.targets")


class TargetsFile:
    """Holds the base limits: those of the options, changed by the last valid content of the file."""

    def __init__(self, path: Path | None, options: EngineOptions, read: Callable[[Path], bytes] | None = None) -> None:
        """`options` are the defaults for absent fields; `read` returns the file's bytes or raises OSError or
        ValueError.
        """
        self._path = path
        self._read = read or read_bounded
        self._started = options.limits
        self._max_num_seqs = options.max_num_seqs
        self._last_content: bytes | None = None
        self._fault = ""
        self.limits = options.limits

    def poll(self) -> bool:
        """Reads the file. Returns True if the limits changed."""
        if self._path is None:
            return False
        try:
            content = self._read(self._path)
            if content == self._last_content:
                return False
            limits = parse_targets(orjson.loads(content), self._started, self._max_num_seqs)
        except (OSError, ValueError, BadRequest) as error:
            self._warn(self._path, str(error).rstrip("."))
            return False
        self._last_content, self._fault = content, ""
        changed, self.limits = limits != self.limits, limits
        if changed:
            log.info(
                "targets of %s: TTFT %g s, ITL %g s, concurrency %d to %d",
                self._path, limits.ttft_target, limits.itl_target, limits.concurrency_min, limits.concurrency_max,
            )  # fmt: skip
        return changed

    def _warn(self, path: Path, fault: str) -> None:
        """Logs each fault once, because the file is read every second."""
        self._last_content = None
        if fault != self._fault:
            self._fault = fault
            log.warning(
                "%s: %s. The targets in force stay; correct the file, it is read again every second.", path, fault
            )


async def follow(
    file: TargetsFile,
    on_change: Callable[[Limits], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Passes the limits to `on_change` after each change of the file, until cancelled."""
    while True:
        await sleep(POLL_SECONDS)
        if file.poll():
            on_change(file.limits)


def read_bounded(path: Path) -> bytes:
    """Returns the bytes of a file of at most MAX_BYTES. Raises OSError, and ValueError for a longer file."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return content
