"""`sluice up` as a subprocess, with all its JSON lines and the time at which each was read."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

Line = dict[str, Any]


class DemoFailed(Exception):
    """The demo cannot continue. The message names the missing event."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One line and the time when it was read (monotonic seconds)."""

    at: float
    line: Line


@dataclass(slots=True)
class Timeline:
    """All lines so far, states separate from events."""

    states: list[Seen] = field(default_factory=list)
    events: list[Seen] = field(default_factory=list)

    def between(self, start: float, end: float) -> list[Seen]:
        """The states read in [start, end]."""
        return [seen for seen in self.states if start <= seen.at <= end]

    def decisions(self, dial: str | None = None) -> list[Line]:
        """The decisions of one dial, or of both."""
        made = [seen.line for seen in self.events if seen.line["event"] == "decision"]
        return [line for line in made if dial is None or line["dial"] == dial]


def descendants(pid: int) -> set[int]:
    """All direct and indirect child processes of a process."""
    with suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}  # type: ignore[no-untyped-call]
    return set()


class Fleet:
    """A running `sluice up`."""

    def __init__(self, file: Path, logs: Path) -> None:
        self._file = file
        self._logs = logs
        self.timeline = Timeline()
        self.noise: list[str] = []  # lines from stderr, the latest last
        self.pids: set[int] = set()  # all engine processes, and all processes that ran at the stop
        self._news = asyncio.Condition()
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sluice", "up", str(self._file), "--port", "0", "--state-dir", str(self._logs),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._readers = [asyncio.create_task(self._read_lines()), asyncio.create_task(self._read_noise())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self, seconds: float = 90.0) -> int:
        """Send SIGINT and return the exit code. A process that does not end in time is killed: code 137."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            self.pids |= descendants(process.pid)
            process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await asyncio.gather(*self._readers)
        return process.returncode if process.returncode is not None and process.returncode >= 0 else 137

    async def until(self, holds: Callable[[Timeline], bool], what: str, seconds: float) -> None:
        """Wait until `holds` is true of the timeline. Raises DemoFailed."""
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: holds(self.timeline) or self._over)
        except TimeoutError as error:
            raise DemoFailed(f"{what} did not happen within {seconds:g} s") from error
        if not holds(self.timeline):
            raise DemoFailed(f"sluice up ended before this happened: {what}")

    async def until_state(self, holds: Callable[[Line], bool], what: str, seconds: float) -> Line:
        """Wait until the latest state satisfies `holds`, and return it. Raises DemoFailed."""
        await self.until(lambda timeline: bool(timeline.states) and holds(timeline.states[-1].line), what, seconds)
        return self.timeline.states[-1].line

    async def url(self) -> str:
        """The gateway's URL. Raises DemoFailed."""
        await self.until(lambda timeline: bool(timeline.events), "the start of sluice up", 120)
        return str(self.timeline.events[0].line["url"])

    @property
    def _over(self) -> bool:
        return bool(self._readers) and self._readers[0].done()

    async def _read_lines(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        async for raw in self._process.stdout:
            try:
                line = json.loads(raw)
            except ValueError:
                self.noise.append(raw.decode("utf-8", "replace").rstrip())
                continue
            into = self.timeline.events if "event" in line else self.timeline.states
            into.append(Seen(time.monotonic(), line))
            self.pids |= {pod["pid"] for pod in line.get("pods", ()) if pod["pid"]}
            async with self._news:
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def _read_noise(self) -> None:
        if self._process is None or self._process.stderr is None:
            return
        async for raw in self._process.stderr:
            self.noise = [*self.noise[-50:], raw.decode("utf-8", "replace").rstrip()]
