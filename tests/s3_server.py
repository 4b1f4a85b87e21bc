"""An S3 server on this machine, for tests with the real client: moto's server, behind a proxy that adds faults.

moto runs in an environment of its own (`.ci/s3-server.txt`), which `make test` makes.
"""

import http.client
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import pytest

SERVER = Path(sys.prefix).parent / f"{Path(sys.prefix).name}-s3" / "bin" / "moto_server"

# moto takes any signature, and refuses objects to requests without one.
_SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@dataclass
class Store:
    """The faults that the store has now, and what it counts. Its address is `url`."""

    url: str
    refusal: tuple[int, str] | None = None  # (status, S3 error code), answered to everything
    truncate_at: int | None = None  # a response ends after so many bytes, and the connection with it
    stop_at: int | None = None  # a response stops after so many bytes until `released`; sets `reached`
    served: int = 0  # bytes of safetensors
    requests: list[str] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def put(self, key: str, content: bytes = b"") -> None:
        """Create a bucket ("bucket") or an object ("bucket/key")."""
        headers = {"Content-Type": "application/octet-stream", "Authorization": _SIGNED}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{key}", content, headers, method="PUT")).close()


@contextmanager
def s3_store() -> Iterator[Store]:
    """A server without buckets."""
    if not SERVER.exists():
        pytest.skip(f"{SERVER} is missing: `make test` makes it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command: list[str] = [str(SERVER), "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as moto:
        try:
            started = threading.Event()
            threading.Thread(target=_drain, args=(moto.stderr, started), daemon=True).start()
            assert started.wait(60) and moto.poll() is None, f"{SERVER} did not start"
            with _Proxy(port) as proxy:
                yield proxy.store
        finally:
            moto.kill()


def _drain(lines: IO[str] | None, started: threading.Event) -> None:
    """Read the server's log to its end; it says when it listens."""
    for line in lines or ():
        if "Running on" in line:
            started.set()
    started.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ClassVar[Store]
    behind: ClassVar[int]

    def do_GET(self) -> None:
        store = self.store
        store.requests.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        if store.refusal is not None:
            status, code = store.refusal
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self._answer(status, {"Content-Type": "application/xml"}, body)
            return
        self._pass_on()

    do_PUT = do_HEAD = do_GET

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=30)
        connection.request(self.command, self.path, body or None, dict(self.headers))
        answer = connection.getresponse()
        kept = {
            name: value for name, value in answer.getheaders() if name.lower() not in ("connection", "date", "server")
        }
        content = answer.read()
        connection.close()
        self._answer(answer.status, kept, content)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        store = self.store
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", headers.get("Content-Length", "0") if not body else str(len(body)))
        self.end_headers()
        weights = ".safetensors" in self.path and self.command == "GET" and "list-type" not in self.path
        cut = store.truncate_at if weights else None
        stop = store.stop_at if weights else None
        try:
            for begin in range(0, len(body), 1 << 16):
                if stop is not None and begin >= stop:
                    store.reached.set()
                    store.released.wait(60)
                    raise ConnectionError
                if cut is not None and begin >= cut:
                    raise ConnectionError
                self.wfile.write(body[begin : begin + (1 << 16)])
                store.served += len(body[begin : begin + (1 << 16)]) if weights else 0
        except OSError:
            self.close_connection = True
            self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


class _Proxy:
    def __init__(self, behind: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.store = Store(f"http://127.0.0.1:{self._server.server_port}")
        handler = type("Handler", (_Handler,), {"store": self.store, "behind": behind})
        self._server.RequestHandlerClass = handler
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.store.released.set()
        self._server.shutdown()
        self._server.server_close()
