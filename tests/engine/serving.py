"""A real `sluice serve` in processes of its own, for tests that speak HTTP to it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


def free_ports(count: int) -> list[int]:
    """So many ports, no two of them the same, that nobody listened on a moment ago."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in probes]


@dataclass(frozen=True)
class Answer:
    """One HTTP response, read completely. Header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """OpenAI's error object; its shape is checked on the way."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error["type"], str)
        assert error["param"] is None or isinstance(error["param"], str)
        assert error["code"] is None or isinstance(error["code"], str)
        return dict(error)


@dataclass
class Served:
    """A running server."""

    process: "subprocess.Popen[bytes]"
    port: int
    admin_port: int
    log: Path
    key: str | None = None  # the API key that requests to the data port carry

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *, admin: bool = False
    ) -> Answer:
        """One request on a connection of its own; `body` is bytes, or JSON-able."""
        port = self.admin_port if admin else self.port
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            given = headers if headers is not None else JSON if raw is not None else {}
            if self.key is not None and not admin:
                given = {"Authorization": f"Bearer {self.key}"} | given
            connection.request(method, path, raw, given)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def with_key(self, data: bytes) -> bytes:
        """Adds the server's key, if it needs one, to the headers of a request in bytes."""
        line = b"" if self.key is None else f"Authorization: Bearer {self.key}\r\n".encode()
        head, end, rest = data.partition(b"\r\n")
        return head + end + line + rest if end else data

    def raw(self, data: bytes, *, timeout: float = 60.0) -> bytes:
        """Sends bytes as they are; everything that comes back until the server closes or falls silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(self.with_key(data))
            received = b""
            try:
                while part := connection.recv(65536):
                    received += part
            except (TimeoutError, ConnectionResetError):
                pass
            return received

    def admin(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request to the admin port."""
        return self.request(method, path, body, headers, admin=True)

    def client(self, retries: int = 0) -> OpenAI:
        """The official client; close it."""
        return OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key=self.key or "none", max_retries=retries, timeout=120
        )

    def metric(self, name: str, **labels: str) -> float:
        """One series' value."""
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in self.admin("GET", "/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series == wanted:
                return float(value)
        raise KeyError(wanted)

    def blocks(self) -> dict[str, int]:
        """KV blocks by state, from the scheduler itself."""
        return dict(self.admin("GET", "/state").json()["blocks"])

    def wait(self, condition: Any, seconds: float = 60.0) -> None:
        """Polls until the condition holds. However long that may take: a busy machine is no failure."""
        poll(condition, seconds, self.log)

    def engine_pid(self) -> int:
        """The engine process."""
        (engine,) = engine_processes(self)
        return engine

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the HTTP process."""
        self.process.send_signal(number)


def poll(condition: Any, seconds: float, log: Path | None = None) -> None:
    """Waits for other processes: there is no clock to inject into them."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            tail = log.read_text()[-3000:] if log is not None else ""
            raise AssertionError(f"did not happen within {seconds} s\n{tail}")
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def engine_processes(served: Served) -> list[int]:
    """Returns the pid of the engine process; empty before it has started."""
    found = children(served.process.pid)
    return [pid for pid in found if b"sluice_engine.core.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


LIMITED = """
import os, resource, sys
files = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
os.execv(sys.argv[2], sys.argv[2:])
"""


def start(
    model: Path | str, log: Path, *options: str, env: dict[str, str] | None = None, open_files: int | None = None
) -> Served:
    """Starts a server without waiting for it; one that may open no more than so many files, where that is given."""
    port, admin_port = free_ports(2)
    command = [sys.executable, "-m", "sluice", "serve", str(model), "--served-name", "tiny", "--threads", "1"]
    command += ["--port", str(port), "--admin-port", str(admin_port), "--kv-size", "4Mi", "--grace-seconds", "0"]
    if open_files is not None:  # by a process of its own: who is not root cannot raise a hard limit again
        command = [sys.executable, "-c", LIMITED, str(open_files), *command]
    roots = os.pathsep.join(str(Path(__file__).parents[2] / root) for root in ("operator", "engine", "kernels"))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, *options], stdout=sink, stderr=sink, env={**os.environ, "PYTHONPATH": roots, **(env or {})}
        )
    return Served(process, port, admin_port, log)


def answers(served: Served, path: str, status: int) -> bool:
    """Whether the admin port answers a path with this status."""
    try:
        return served.admin("GET", path).status == status
    except (OSError, http.client.HTTPException):
        return False


@contextmanager
def serving(
    model: Path,
    log: Path,
    *options: str,
    env: dict[str, str] | None = None,
    open_files: int | None = None,
    ready_seconds: float = 120.0,
) -> Iterator[Served]:
    """A server that is ready; it and its engine process are gone afterwards."""
    served = start(model, log, *options, env=env, open_files=open_files)
    try:
        served.wait(lambda: served.process.poll() is not None or answers(served, "/readyz", 200), ready_seconds)
        assert served.process.poll() is None, log.read_text()[-3000:]
        yield served
    finally:
        served.process.kill()
        served.process.wait(60)


def body(tokens: int, *, stream: bool = True) -> dict[str, Any]:
    """A chat that runs for exactly so many tokens."""
    messages = [{"role": "user", "content": "hi"}]
    return {"model": "tiny", "messages": messages, "max_tokens": tokens, "stream": stream, "ignore_eos": True}


class Reader(threading.Thread):
    """A client in the background."""

    def __init__(self, served: Served, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._served, self._request = served, request
        self.status = 0
        self.text = b""
        self.start()

    def run(self) -> None:
        try:
            answer = self._served.request("POST", CHAT, self._request)
            self.status, self.text = answer.status, answer.body
        except OSError as error:
            self.text = repr(error).encode()

    @property
    def last_event(self) -> bytes:
        return self.text.strip().split(b"\n\n")[-1]


def refused(served: Served) -> bool:
    """Whether a request is refused as draining; checks that the connection closes either way."""
    answer = served.request("POST", CHAT, body(1, stream=False))
    if answer.status == 200:
        assert answer.headers["connection"] == "close"
        return False
    assert answer.status == 503
    assert answer.error["code"] == "draining"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["connection"] == "close"
    return True
