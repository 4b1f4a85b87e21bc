"""Brings the model to this machine before the engine starts, while the ports already answer.

The download is the phase `fetch` of the cold start. A failed one is shown on /readyz with its reason; in a pod it is
tried again until the cause is removed, because a restart of the container would remove nothing.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sluice_engine import messages
from sluice_engine.server.options import ServerSettings
from sluice_engine.sources import MemoryPlan, Patience, Progress, SourceError, fetch, progress_text, retry_seconds
from sluice_engine.sources.fetching import ATTEMPTS
from sluice_engine.sources.pin import pinned
from sluice_engine.sources.progress import Rate

LOG_SECONDS: Final = 10.0  # between two lines about the progress

log = logging.getLogger("sluice.fetch")


class ModelFetch:
    """The download of one model. Its fields belong to the event loop."""

    def __init__(
        self,
        model: str,
        settings: ServerSettings,
        on_loading: Callable[[messages.Loading], None],
        clock: Callable[[], float] = time.monotonic,
        memory: Callable[[], MemoryPlan | None] = lambda: None,
    ) -> None:
        """`memory()`: what the model must fit, asked for each attempt."""
        self._model = model
        self._settings = settings
        self._on_loading = on_loading
        self._clock = clock
        self._memory = memory
        self._stop = threading.Event()
        self._rate = Rate()
        self._began = clock()
        self._logged = clock()
        self._received = 0
        self._received_at_failure = -1
        self.text = ""  # the progress in words; "" before the size is known, and at the end
        self.problem: SourceError | None = None  # why the last attempt failed, until data arrive again
        self.revision: str | None = None

    async def run(self) -> Path:
        """The model's folder, downloaded if it is remote. Raises SourceError."""
        failed = 0
        while True:
            try:
                return await self._attempt()
            except SourceError as error:
                failed += 1
                self.problem, self._received_at_failure = error, self._received
                if self._settings.fetch_errors == "exit" and (not error.transient or failed >= ATTEMPTS):
                    raise
                wait = retry_seconds(failed, error.retry_after)
                log.warning("%s: %s The next attempt is in %.0f s.", error.reason, error, wait)
                await asyncio.sleep(wait)

    def stop(self) -> None:
        """Ends a running download within a second; the next one continues it."""
        self._stop.set()

    async def _attempt(self) -> Path:
        loop = asyncio.get_running_loop()
        model = pinned(self._model, self._settings.revision_file)

        def on_progress(progress: Progress) -> None:  # in the download's thread
            loop.call_soon_threadsafe(self._on_progress, progress)

        fetched = await asyncio.to_thread(
            fetch,
            model,
            self._settings.cache,
            on_progress,
            patience=Patience(attempts=1),
            stop=self._stop,
            memory=self._memory(),
        )
        self.text, self.problem, self.revision = "", None, fetched.revision
        if fetched.revision is not None:
            self._report(1.0)
            log.info("%s is at %s, revision %s", model, fetched.folder, fetched.revision)
        return fetched.folder

    def _on_progress(self, progress: Progress) -> None:
        if progress.total_bytes:
            now, self._received = self._clock(), progress.received_bytes
            if self._received > self._received_at_failure:
                self.problem = None
            self.text = progress_text(progress, self._rate.seconds_left(progress, now))
            if now - self._logged >= LOG_SECONDS:
                self._logged = now
                log.info("fetching %s: %s", self._model, self.text)
        self._report(progress.fraction)

    def _report(self, fraction: float) -> None:
        self._on_loading(messages.Loading("fetch", fraction, self._clock() - self._began))
