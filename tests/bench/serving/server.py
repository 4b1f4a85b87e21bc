"""A server in a process group of its own, stopped (SIGSTOP) while it is idle, so that no side slows another."""

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

START_SECONDS: Final = 600.0  # vLLM compiles at its start
LAST_WORDS: Final = 300  # characters of the log in an error message


class ServerFailed(Exception):
    """The server did not start; the message has the end of its log."""


class Server:
    """Listens at 127.0.0.1:`port`; is ready once `health` is answered with 200."""

    def __init__(self, command: Sequence[str], more: Mapping[str, str], port: int, health: str, log: Path) -> None:
        """Start it. `more` is added to the environment."""
        self.port, self._health, self._log = port, health, log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command, env=os.environ | dict(more), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Wait until it is ready, then stop it. Raises ServerFailed."""
        until = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            if self._answers():
                self._signal(signal.SIGSTOP)
                return
            time.sleep(0.5)
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        raise ServerFailed(f"it is not ready: {said[-1][:LAST_WORDS] if said else 'it said nothing'} ({self._log})")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It runs meanwhile."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """Kill it and its children."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", self._health)
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False  # not listening yet
        finally:
            connection.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
