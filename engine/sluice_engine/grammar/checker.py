"""Compiles grammars on trial in a process of its own, within limits, before a request with one is accepted.

A grammar that exceeds a limit, or ends the process, is refused; the process is started again. Verdicts are kept. They
do not depend on what else the machine does: the limit is one of processor time.
"""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections import OrderedDict
from dataclasses import asdict
from typing import Final, NamedTuple

from sluice_engine.grammar.grammar import Grammar, GrammarInvalid, check_bounds

SECONDS: Final = 1.0  # of processor time for the grammars of one request together
WAIT_SECONDS: Final = 10.0  # for the same, in the turn of others and on a busy machine
START_SECONDS: Final = 30.0
VERDICTS: Final = 1024
LINE_BYTES: Final = 1 << 20
LEAST_SECONDS: Final = 0.001  # a timer of 0 s would be none

log = logging.getLogger("sluice.grammar")


class CheckerBusy(Exception):
    """The grammars of a request were not judged in time, because others are; a later try may succeed."""


class Verdict(NamedTuple):
    """`fault` is empty if the grammar can be enforced. `seconds` of processor time were used to find it now."""

    fault: str
    seconds: float = 0.0
    kept: bool = True  # false where another request may get another one


class Trial:
    """The check of one request's grammars, which share their time."""

    def __init__(self, checker: "GrammarChecker", seconds: float, until: float) -> None:
        """`until` is in event-loop seconds."""
        self._checker, self._left, self._until = checker, seconds, until

    async def check(self, grammar: Grammar) -> None:
        """Return if the grammar can be enforced. Raises GrammarInvalid and CheckerBusy."""
        check_bounds(grammar)
        try:
            async with asyncio.timeout_at(self._until):
                verdict = await self._checker.judge(grammar, self._left)
        except TimeoutError as error:
            raise CheckerBusy from error
        self._left -= verdict.seconds
        if verdict.fault:
            raise GrammarInvalid(verdict.fault)


class GrammarChecker:
    """The process and the verdicts. It belongs to one event loop."""

    def __init__(self, seconds: float = SECONDS, wait_seconds: float = WAIT_SECONDS) -> None:
        self._seconds, self._wait_seconds = seconds, wait_seconds
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

    def trial(self) -> Trial:
        """The check of a request's grammars, whose time begins now."""
        return Trial(self, self._seconds, asyncio.get_running_loop().time() + self._wait_seconds)

    async def judge(self, grammar: Grammar, seconds: float) -> Verdict:
        """The verdict on a grammar: the one that is known, or else what its compilation in at most `seconds` shows."""
        if (known := self._known(grammar)) is not None:
            return known
        async with self._turn:
            if (known := self._known(grammar)) is not None:  # another request had the same one
                return known
            verdict = await self._compile(grammar, seconds)
        if verdict.kept:
            self._verdicts[grammar] = verdict.fault
            if len(self._verdicts) > VERDICTS:
                self._verdicts.popitem(last=False)
        return verdict

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)

    def _known(self, grammar: Grammar) -> Verdict | None:
        if (fault := self._verdicts.get(grammar)) is None:
            return None
        self._verdicts.move_to_end(grammar)
        return Verdict(fault)

    async def _compile(self, grammar: Grammar, seconds: float) -> Verdict:
        process = await self._running()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        try:
            given = {"grammar": asdict(grammar), "seconds": max(seconds, LEAST_SECONDS)}
            process.stdin.write(json.dumps(given).encode() + b"\n")
            line = await process.stdout.readline()
            if line:
                return Verdict(**json.loads(line))
            await process.wait()
        except asyncio.CancelledError:
            await self.stop()  # else the next grammar would read this one's verdict
            raise
        except ConnectionError:
            await process.wait()
        await self.stop()
        verdict = self._of_the_dead(process, seconds)
        log.warning("a grammar of kind %s is refused: %s", grammar.kind, verdict.fault)
        return verdict

    def _of_the_dead(self, process: asyncio.subprocess.Process, seconds: float) -> Verdict:
        """What the end of the process says of the grammar that it compiled."""
        if process.returncode != -signal.SIGPROF:
            return Verdict("its compilation needs too much memory or nesting")
        fault = f"its compilation takes longer than {self._seconds:g} s of processor time"
        if seconds >= self._seconds:
            return Verdict(fault)
        return Verdict(f"{fault} together with the request's others", kept=False)

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
