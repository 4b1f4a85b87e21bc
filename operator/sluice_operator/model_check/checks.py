"""Reads each model once, in the background, and keeps what was read: a pass waits for a first read only."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluice.models.uri import HubModel, ModelUri
from sluice_operator.model_check.record import ModelReader, ModelRecord, NotChecked

log = logging.getLogger(__name__)

READ_SECONDS: Final = 8.0  # deadline of a read, and the longest that a pass waits
AGAIN_SECONDS: Final = 120.0  # a branch may have moved on by then
FAILED_AGAIN_SECONDS: Final = 60.0
MAX_MODELS: Final = 256
_COMMIT: Final = 40  # hex digits


@dataclass(frozen=True, slots=True)
class _Known:
    found: ModelRecord | NotChecked
    again_at: float  # monotonic seconds


class ModelChecks:
    """The models that were read. Its methods belong to the event loop."""

    def __init__(self, reader: ModelReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._known: OrderedDict[ModelUri, _Known] = OrderedDict()
        self._reading: dict[ModelUri, asyncio.Task[None]] = {}

    def known(self, uri: ModelUri) -> ModelRecord | NotChecked | None:
        """The model as last read, without a new read; None before the first one."""
        known = self._known.get(uri)
        return None if known is None else known.found

    async def look_up(self, uri: ModelUri) -> ModelRecord | NotChecked:
        """The model as last read. Waits for a first read only, for READ_SECONDS at most. Never raises."""
        known = self._known.get(uri)
        if known is None or self._clock() >= known.again_at:
            task = self._reading.get(uri)
            if task is None:
                task = self._reading[uri] = asyncio.create_task(self._read(uri), name=f"read {uri}")
            if known is None:
                await asyncio.wait({task}, timeout=READ_SECONDS)
                known = self._known.get(uri)
        return known.found if known is not None else NotChecked(f"it could not be read within {READ_SECONDS:.0f} s")

    async def close(self) -> None:
        """End the reads in progress."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, uri: ModelUri) -> None:
        found: ModelRecord | NotChecked
        try:
            async with asyncio.timeout(READ_SECONDS):
                found = await self._reader.read(uri)
        except NotChecked as error:
            found = error.with_traceback(None)
        except TimeoutError:
            found = NotChecked(f"it could not be read within {READ_SECONDS:.0f} s")
        except Exception as error:
            log.warning("%s cannot be read: %s", uri, error, exc_info=True)
            found = NotChecked(f"reading it failed ({type(error).__name__})")
        finally:
            self._reading.pop(uri, None)
        self._keep(uri, found)

    def _keep(self, uri: ModelUri, found: ModelRecord | NotChecked) -> None:
        before = self._known.pop(uri, None)
        again = AGAIN_SECONDS
        if isinstance(found, NotChecked):
            again = FAILED_AGAIN_SECONDS
            if before is None or not isinstance(before.found, NotChecked):
                log.info("%s is not checked: %s", uri, found)
            if before is not None:
                found = before.found if not isinstance(before.found, NotChecked) else found
        elif isinstance(uri, HubModel) and uri.revision and len(uri.revision) == _COMMIT:
            again = float("inf")
        self._known[uri] = _Known(found, self._clock() + again)
        while len(self._known) > MAX_MODELS:
            self._known.popitem(last=False)
