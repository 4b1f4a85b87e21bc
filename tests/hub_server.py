"""A small Hugging Face hub on this machine, for tests with the real client library: listing, ranges, and faults."""

import hashlib
import json
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
NEWER = "decaf" + "0" * 35
REPO = "org/model"


@dataclass
class Hub:
    """What the hub holds, what it counts, and the faults that it has now."""

    files: dict[str, bytes]
    token: str = ""  # required, unless empty
    refusal: tuple[int, dict[str, str]] | None = None  # answered to everything
    refusals: int = 10**9  # how often
    claimed_size: int | None = None  # announced for model.safetensors
    truncate_at: int | None = None  # a response ends after so many bytes, and the connection with it
    stop_at: int | None = None  # a response stops at this byte of the file until `released`; sets `reached`
    drip_after: int | None = None  # after so many bytes of a response, 16 KiB arrive every 0.2 s
    moved: bool = False  # the default branch is at NEWER, which has no files
    corrupt: bool = False  # the first byte of safetensors is wrong
    served: int = 0  # bytes of safetensors
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def tree(self) -> list[dict[str, Any]]:
        entries = []
        for name, content in self.files.items():
            size = len(content)
            if name == "model.safetensors" and self.claimed_size is not None:
                size = self.claimed_size
            entry: dict[str, Any] = {
                "type": "file",
                "path": name,
                "size": size,
                "oid": hashlib.sha1(content).hexdigest(),
            }
            if name.endswith((".safetensors", ".gguf")):
                entry["lfs"] = {"size": size, "oid": hashlib.sha256(content).hexdigest(), "pointerSize": 130}
            entries.append(entry)
        return entries


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        # Small buffers: the bytes that the hub has served are about those that the client has read.
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        super().setup()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        with hub.lock:
            hub.requests.append(f"{path} {self.headers.get('Range', '')}".strip())
            refused = hub.refusal if hub.refusals > 0 else None
            hub.refusals -= refused is not None
        if refused is not None:
            return self._answer(refused[0], b"{}", refused[1])
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._answer(401, b"{}", {"X-Error-Message": "Invalid username or password."})
        api, resolve = f"/api/models/{REPO}", f"/{REPO}/resolve/{COMMIT}/"
        if path == api or path in (f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            commit = NEWER if hub.moved and not path.endswith(COMMIT) else COMMIT
            return self._answer(200, json.dumps({"id": REPO, "sha": commit}).encode(), {})
        if path == f"{api}/tree/{NEWER}":
            return self._answer(200, b"[]", {})
        if path == f"{api}/tree/{COMMIT}":
            return self._answer(200, json.dumps(hub.tree()).encode(), {})
        if path.startswith(f"{api}/revision/"):
            return self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if path.startswith(resolve) and (name := path.removeprefix(resolve)) in hub.files:
            return self._file(name, hub.files[name])
        return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _file(self, name: str, content: bytes) -> None:
        wanted = self.headers.get("Range")
        begin = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        heavy = name.endswith((".safetensors", ".gguf"))
        body = b"\xff" + content[1:] if heavy and self.hub.corrupt else content
        for at in range(begin, len(body), 1 << 14):
            if heavy and not self._fault(at, at - begin):
                return
            block = body[at : at + (1 << 14)]
            try:
                self.wfile.write(block)
            except OSError:
                self.close_connection = True
                return
            if heavy:
                with self.hub.lock:
                    self.hub.served += len(block)

    def _fault(self, at: int, sent: int) -> bool:
        """Applies the hub's fault to a response at this byte of the file, of which so many are sent; False if it ends here."""
        hub = self.hub
        if hub.stop_at is not None and at >= hub.stop_at and not hub.released.is_set():
            hub.reached.set()
            hub.released.wait(60)
            self.close_connection = True
            return False
        if hub.drip_after is not None and sent >= hub.drip_after:
            hub.released.wait(0.2)
        if hub.truncate_at is not None and sent >= hub.truncate_at:
            self.close_connection = True
            return False
        return True


class HubServer:
    """Context manager: the hub at an address, by default a free port of the loopback interface."""

    def __init__(self, files: dict[str, bytes], address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.hub = Hub(files)
        handler = type("Handler", (_Handler,), {"hub": self.hub})
        self._server = ThreadingHTTPServer(address, handler)
        self._server.daemon_threads = True
        self.hub.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self.hub

    def __exit__(self, *_: object) -> None:
        self.hub.released.set()
        self._server.shutdown()
        self._server.server_close()
