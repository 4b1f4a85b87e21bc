"""An OpenAI server on this machine whose answers a test writes, with as many pieces and failures as it wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """One answer of the server. `then` says how the stream ends: done, or held open, or cut without an end."""

    text: str = ""
    reasoning: str = ""  # before the text
    then: str = "done"  # done | held | cut
    finish: str = "stop"
    status: int = 200
    message: str = ""  # of the error object, for another status
    headers: dict[str, str] = field(default_factory=dict)


class ScriptedServer(ThreadingHTTPServer):
    """Answers the requests in the order of `replies`, then each with the last one; keeps the bodies in `requests`."""

    daemon_threads = True

    def __init__(self, *replies: Reply, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.metrics = ""  # of GET /metrics
        self.closing = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def take(self, body: dict[str, Any], key: str | None) -> Reply:
        with self.lock:
            self.requests.append(body)
            self.keys.append(key)
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the screen of the command is under test."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._text(200, self.server.metrics.encode(), {"Content-Type": "text/plain"})
            return
        self._json(200, {"object": "list", "data": [{"id": "scripted"}]}, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = self.server.take(body, self.headers.get("authorization"))
        if reply.status != 200:
            self._json(reply.status, {"error": {"message": reply.message}}, reply.headers)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in reply.reasoning.split(" ") if reply.reasoning else ():
            self._event({"choices": [{"delta": {"reasoning_content": f"{piece} "}}]})
        pieces = reply.text.split(" ")
        for place, piece in enumerate(pieces):
            self._event({"choices": [{"delta": {"content": piece if place == 0 else f" {piece}"}}]})
        if reply.then == "held":
            self.server.closing.wait()
        if reply.then == "done":
            self._event({"choices": [{"delta": {}, "finish_reason": reply.finish}]})
            usage = {"prompt_tokens": 7, "completion_tokens": len(pieces)}
            self._event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any], headers: dict[str, str]) -> None:
        self._text(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})

    def _text(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, content in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def scripted(*replies: Reply, port: int = 0) -> Iterator[ScriptedServer]:
    """A running server; its open streams end with the context."""
    with ScriptedServer(*replies, port=port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
