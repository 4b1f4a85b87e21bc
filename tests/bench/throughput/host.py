"""The parent side of a comparison: worker processes that all stay loaded and run one at a time.

An idle worker is stopped (SIGSTOP to its process group), so that no spinning thread of one engine slows another. Every
fault of a worker (no start, death, hang, too few tokens) is a WorkerFailed with a reason.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.bench.processes.process_group import last_words, signal_group
from tests.bench.throughput.load import Load
from tests.bench.throughput.worker import Setup

ROOT = Path(__file__).parents[3]
START_SECONDS = 600.0  # vLLM compiles at its start
ROUND_SECONDS = 900.0


class WorkerFailed(Exception):
    """This side has no number; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one round of one side."""

    seconds: float
    tokens: Sequence[Sequence[int]]  # of each request


class Worker:
    """One engine in a process of its own, stopped while it is idle."""

    def __init__(self, module: str, python: str, setup: Setup, log: Path, more: Mapping[str, str]) -> None:
        """Start the process, which begins to load. Raises WorkerFailed if the interpreter does not exist."""
        self._log = log
        with log.open("w") as file:
            try:
                self._process = subprocess.Popen(
                    [python, "-m", module, json.dumps(asdict(setup))],
                    cwd=ROOT,
                    env=os.environ | dict(more),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkerFailed(f"{python} cannot be started: {error}") from error
        if self._process.stdin is None or self._process.stdout is None:
            raise WorkerFailed("it has no pipes")  # unreachable: both pipes were requested
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def ready(self) -> dict[str, str]:
        """Wait until it has loaded, stop it, and return its description."""
        about: dict[str, str] = self._line(START_SECONDS)["ready"]
        self._signal(signal.SIGSTOP)
        return about

    def ask(self, load: Load) -> Answer:
        """Run a load. Raises WorkerFailed, also if a request returns a wrong number of tokens."""
        self._signal(signal.SIGCONT)
        try:
            self._questions.write(json.dumps({"prompts": load.prompts, "max_tokens": load.max_tokens}) + "\n")
            self._questions.flush()
        except OSError as error:
            raise WorkerFailed(f"it died: {last_words(self._log)}") from error
        said = self._line(ROUND_SECONDS)
        self._signal(signal.SIGSTOP)
        if [len(tokens) for tokens in said["tokens"]] != list(load.max_tokens):
            raise WorkerFailed("a request came back with fewer or more tokens than were asked for")
        return Answer(said["seconds"], said["tokens"])

    def close(self) -> None:
        """Kill it and all its children."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(OSError):  # unread input of a dead worker
            self._questions.close()
        self._answers.close()

    def _line(self, seconds: float) -> dict[str, Any]:
        hung = threading.Event()

        def give_up() -> None:
            hung.set()
            self._signal(signal.SIGKILL)

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            line = self._answers.readline()
        finally:
            timer.cancel()
        if not line:
            raise WorkerFailed(
                f"no answer within {seconds:g} s" if hung.is_set() else f"it died: {last_words(self._log)}"
            )
        said: dict[str, Any] = json.loads(line)
        return said

    def _signal(self, number: signal.Signals) -> None:
        signal_group(self._process.pid, number)


@contextlib.contextmanager
def worker(
    module: str, python: str, setup: Setup, log: Path, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Worker]:
    """A worker that is killed at the end in any case. `more` is added to the environment."""
    running = Worker(module, python, setup, log, more)
    try:
        yield running
    finally:
        running.close()
