"""Two displays of the loop: a live table on a terminal, JSON lines otherwise."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sluice.up.snapshot import Snapshot

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
        """Show an event: started, decision, note, stopping, stopped."""

    def close(self) -> None:
        """Restore the terminal."""


class JsonLines:
    """One JSON object per line: on each notable change, and every few seconds."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`write` takes one line without its newline."""
        self._write = write
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
        self._line(snapshot.fields())

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a line with "event"."""
        self._line({"event": kind, **fields})

    def close(self) -> None:
        """Nothing to restore."""

    def _line(self, fields: Mapping[str, Any]) -> None:
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            self._write(json.dumps({"time": stamp, **fields}))
        except BrokenPipeError:
            self._gone = True


class LiveTable:
    """A table that is redrawn in place, with the last events below it."""

    def __init__(self, console: Console) -> None:
        self._events: deque[Text] = deque(maxlen=KEPT_EVENTS)
        self._snapshot: Snapshot | None = None
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
        words = str(fields.get("message") or fields.get("url") or "")
        style = "yellow" if fields.get("warning") else "dim"
        self._events.append(Text(f"{datetime.now():%H:%M:%S} {kind}: {words}", style=style))
        self._draw()

    def close(self) -> None:
        """Stop redrawing."""
        self._live.stop()

    def _draw(self) -> None:
        parts = [_table(self._snapshot)] if self._snapshot is not None else []
        self._live.update(Group(*parts, *self._events), refresh=True)


def _table(snapshot: Snapshot) -> Table:
    table = Table(title=f"{snapshot.name} at {snapshot.url}/v1", title_justify="left", expand=True)
    for name in ("MODEL", "READY", "KV %", "TTFT", "ITL", "LIMIT", "QUEUE", "RUNNING", "WAITING"):
        table.add_column(name, justify="left" if name == "MODEL" else "right", no_wrap=True)
    table.add_column("WHY", ratio=1)
    table.add_row(
        snapshot.name,
        f"{snapshot.ready}/{snapshot.desired}",
        _shown(snapshot.kv_percent),
        _shown(snapshot.ttft_ms, " ms"),
        _shown(snapshot.itl_ms, " ms"),
        _shown(snapshot.limit),
        _shown(snapshot.queue),
        str(snapshot.running),
        str(snapshot.waiting),
        snapshot.why,
    )
    for pod in snapshot.pods:
        table.add_row(
            f"  {pod.name}",
            pod.phase,
            _shown(pod.kv_percent),
            "",
            "",
            _shown(pod.limit),
            _shown(pod.queue),
            _shown(pod.running),
            _shown(pod.waiting),
            pod.trouble or "",
            style="dim",
        )
    return table


def _shown(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:g}{unit}"
