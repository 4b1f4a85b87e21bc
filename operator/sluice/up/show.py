"""Two displays of the loop: a live table on a terminal, log lines otherwise."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sluice.logs import FIELDS
from sluice.up.snapshot import Snapshot
from sluice.up.table import short_name, status_table

EVERY_SECONDS: Final = 3.0  # longest time between two lines without a notable change
KEPT_EVENTS: Final = 6


class Show(Protocol):
    """Receives the state and the events of the loop."""

    @property
    def gone(self) -> bool:
        """True if the output has no reader any more."""

    def snapshot(self, snapshot: Snapshot) -> None:
        """Show the current state."""

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Show an event with its "message": started, decision, note, stopping, stopped."""

    def close(self) -> None:
        """Restore the terminal."""


class LogLines:
    """One log line on each notable change and every few seconds, with the whole state as fields."""

    def __init__(
        self,
        write: Callable[[str], None],
        formatter: logging.Formatter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write` takes one line without its newline."""
        self._write = write
        self._formatter = formatter
        self._clock = clock
        self._last: tuple[object, ...] | None = None
        self._at = float("-inf")
        self._gone = False

    @property
    def gone(self) -> bool:
        """True if the reader closed the pipe."""
        return self._gone

    def snapshot(self, snapshot: Snapshot) -> None:
        """Write a line if the state changed notably or EVERY_SECONDS have passed."""
        now = self._clock()
        if snapshot.notable() == self._last and now - self._at < EVERY_SECONDS:
            return
        self._last, self._at = snapshot.notable(), now
        counts = f"{snapshot.ready}/{snapshot.desired} ready, {snapshot.running} running, {snapshot.waiting} waiting"
        self._line(logging.INFO, f"{snapshot.name}: {counts}: {snapshot.why}", snapshot.fields())

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a line with "event"."""
        others = {name: value for name, value in fields.items() if name != "message"}
        level = logging.WARNING if fields.get("warning") else logging.INFO
        self._line(level, str(fields.get("message", kind)), {"event": kind, **others})

    def close(self) -> None:
        """Nothing to restore."""

    def _line(self, level: int, message: str, fields: Mapping[str, Any]) -> None:
        standard = {"name": "sluice.up", "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
        record = logging.makeLogRecord(standard | {FIELDS: dict(fields)})
        try:
            self._write(self._formatter.format(record))
        except BrokenPipeError:
            self._gone = True


class LiveTable:
    """A table that is redrawn in place, with its reasons and the last events below it."""

    def __init__(self, console: Console) -> None:
        self._events: deque[Text] = deque(maxlen=KEPT_EVENTS)
        self._snapshot: Snapshot | None = None
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    @property
    def gone(self) -> bool:
        """False: a closed terminal sends a signal instead."""
        return False

    def snapshot(self, snapshot: Snapshot) -> None:
        """Redraw with the new state."""
        self._snapshot = snapshot
        self._draw()

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Add the event below the table."""
        style = "yellow" if fields.get("warning") else "dim"
        self._events.append(Text(f"{datetime.now():%H:%M:%S} {kind}: {fields.get('message', '')}", style=style))
        self._draw()

    def close(self) -> None:
        """Stop redrawing."""
        self._live.stop()

    def _draw(self) -> None:
        parts = [] if self._snapshot is None else [*_state(self._snapshot, self._console.width)]
        self._live.update(Group(*parts, *self._events), refresh=True)


def _state(snapshot: Snapshot, width: int) -> list[Any]:
    """The address, the table, and what it does not show: why there are so many replicas, and what is wrong with one."""
    faults = {pod.trouble: short_name(pod.name) for pod in snapshot.pods if pod.trouble}  # a fault of all is shown once
    lines: list[Any] = [Text(f"{snapshot.url}/v1", style="bold"), "", status_table(snapshot, width), ""]
    if snapshot.why not in faults:
        lines.append(Text(snapshot.why))
    lines += [Text(f"{name}: {fault}", style="yellow") for fault, name in faults.items()]
    return [*lines, ""]
