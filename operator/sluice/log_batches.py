"""Writes the log lines of requests together: a write for each of them would cost a gateway a sixth of its processor time."""

import asyncio
import logging
from typing import Any, Final

DELAY_SECONDS: Final = 0.1  # for which a line may wait for others; a killed process loses these


class BatchedLines(logging.Handler):
    """Passes the lines of one event loop to another handler's stream, at most DELAY_SECONDS later; at once without a loop."""

    def __init__(self, target: "logging.StreamHandler[Any]") -> None:
        super().__init__()
        self._target = target
        self._lines: list[str] = []
        self._waits_in: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a line."""
        try:
            line = self._target.format(record)
        except Exception:  # noqa: BLE001 - as logging's own handlers: a line that cannot be formatted is reported
            self.handleError(record)
            return
        self._lines.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no loop runs in this thread
            self.flush()
            return
        if self._waits_in is not loop:
            self._waits_in = loop
            loop.call_later(DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes the lines that wait. `logging` calls it at the end of the process."""
        self.acquire()  # another thread may add a line meanwhile
        try:
            lines, self._lines, self._waits_in = self._lines, [], None
            if lines:
                self._write(lines)
        finally:
            self.release()

    def _write(self, lines: list[str]) -> None:
        end = self._target.terminator
        self._target.acquire()
        try:
            self._target.stream.write(end.join(lines) + end)
            self._target.flush()
        finally:
            self._target.release()


def write_together(*loggers: str) -> None:
    """From now on, the records of these loggers are written in batches to the stream of the root logger's handler."""
    for target in logging.getLogger().handlers:
        if isinstance(target, logging.StreamHandler):
            for name in loggers:
                logger = logging.getLogger(name)
                logger.handlers[:] = [BatchedLines(target)]
                logger.propagate = False
