"""Runs in a pod as a Hugging Face hub: one model, at a port for each fault. Beside it is tests/hub_server.py.

Usage: hub.py FOLDER, with the model's files

Port 8001 answers GET /asked/PORT with the requests for files of the model at that port, as "PATH RANGE". GET /mend/PORT does
the same and ends the port's fault.
"""

import json
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.hub_server import Hub, HubServer

CONTROL_PORT: Final = 8001
TOKEN: Final = "hf-token-of-the-e2e"
PRIVATE, GATED, LARGE, ABSENT, LIMITED, SILENT, TRUNCATED, FILLED = range(9101, 9109)
FAULTS: Final[dict[int, dict[str, Any]]] = {
    PRIVATE: {"token": TOKEN},
    GATED: {"refusal": (403, {"X-Error-Code": "GatedRepo"})},
    LARGE: {"claimed_size": 4 * 2**30},
    ABSENT: {"refusal": (404, {"X-Error-Code": "RepoNotFound"})},
    LIMITED: {"refusal": (429, {"Retry-After": "5"})},
    SILENT: {"stop_at": 2 * 2**20},
    TRUNCATED: {"truncate_at": 2**20},
    FILLED: {"stop_at": 2 * 2**20},
}


class Control(BaseHTTPRequestHandler):
    """The handler of one request to the control port."""

    hubs: ClassVar[dict[int, Hub]] = {}

    def do_GET(self) -> None:
        """Tell what was asked, and end the fault if the path says so."""
        _, verb, port = self.path.split("/")
        hub = self.hubs[int(port)]
        if verb == "mend":
            hub.refusal = hub.truncate_at = None
            hub.released.set()
        body = json.dumps([asked for asked in hub.requests if "/resolve/" in asked]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until the process is killed."""
    files = {path.name: path.read_bytes() for path in Path(sys.argv[1]).iterdir() if path.is_file()}
    with ExitStack() as stack:
        for port, faults in FAULTS.items():
            hub = stack.enter_context(HubServer(files, ("0.0.0.0", port)))
            for name, value in faults.items():
                setattr(hub, name, value)
            Control.hubs[port] = hub
        threading.Thread(target=ThreadingHTTPServer(("0.0.0.0", CONTROL_PORT), Control).serve_forever).start()
        threading.Event().wait()


if __name__ == "__main__":
    main()
