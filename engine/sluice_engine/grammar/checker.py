"""Compiles grammars on trial in a process of its own, within a time limit, before a request with one is accepted.

A grammar that exceeds the limit, or ends the process, is refused; the process is started again. Verdicts are kept.
"""

import asyncio
import contextlib
import json
import logging
import sys
from collections import OrderedDict
from dataclasses import asdict
from typing import Final

from sluice_engine.grammar.grammar import Grammar, GrammarInvalid, check_bounds

SECONDS: Final = 1.0  # of one compilation
START_SECONDS: Final = 30.0
VERDICTS: Final = 1024
LINE_BYTES: Final = 1 << 20

log = logging.getLogger("sluice.grammar")


class GrammarChecker:
    """The process and the verdicts. It belongs to one event loop."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._verdicts: OrderedDict[Grammar, str] = OrderedDict()
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process, so that the first grammar does not wait for it."""
        async with self._turn:
            await self._running()

    async def check(self, grammar: Grammar) -> None:
        """Return if the grammar can be enforced. Raises GrammarInvalid."""
        check_bounds(grammar)
        fault = self._verdicts.pop(grammar, None)
        if fault is None:
            async with self._turn:
                fault = await self._compile(grammar)
        self._verdicts[grammar] = fault
        if len(self._verdicts) > VERDICTS:
            self._verdicts.popitem(last=False)
        if fault:
            raise GrammarInvalid(fault)

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)

    async def _compile(self, grammar: Grammar) -> str:
        process = await self._running()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        try:
            process.stdin.write(json.dumps(asdict(grammar)).encode() + b"\n")
            async with asyncio.timeout(self._seconds):
                line = await process.stdout.readline()
            if line:
                return str(json.loads(line)["fault"])
            fault = "its compilation needs too much memory or nesting"
        except TimeoutError:
            fault = f"its compilation takes longer than {self._seconds:g} s"
        except asyncio.CancelledError:
            await self.stop()  # else the next grammar would read this one's verdict
            raise
        except ConnectionError:
            fault = "its compilation failed"
        log.warning("a grammar of kind %s is refused: %s", grammar.kind, fault)
        await self.stop()
        return fault

    async def _running(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or process.returncode is not None:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sluice_engine.grammar.check_process",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, limit=LINE_BYTES,
            )  # fmt: skip
            try:
                if process.stdout is None:
                    raise RuntimeError("the process has no pipes")
                async with asyncio.timeout(START_SECONDS):
                    await process.stdout.readline()
            except BaseException:
                await _end(process)  # else the first verdict would be read as the word that it is ready
                raise
            self._process = process
        return process


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
