"""Runs in a pod that has the labels of an LLMDeployment's engines and no owner: answers as an engine, records requests.

Usage: foreign.py serve | crash

`serve`: port 8001 answers GET /metrics as an idle engine does, anything else with 200; GET /asked lists all other
requests as [{method, path, authorized}]. `crash`: ends with the termination message of an engine without a model.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sluice import contract
from sluice_engine.config import EngineOptions
from sluice_engine.limits import at_start
from sluice_engine.server.metrics import EngineMetrics

ASKED = "/asked"
READY = "/readyz"  # polled by the kubelet


class Engine(BaseHTTPRequestHandler):
    """The handler of one request."""

    protocol_version = "HTTP/1.1"
    metrics: EngineMetrics
    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        """Return the metrics, the record, or an empty object."""
        if self.path == ASKED:
            self._answer(json.dumps(self.asked).encode())
        else:
            self._record()
            self._answer(self.metrics.render() if self.path == contract.PATH_METRICS else b"{}")

    def do_PATCH(self) -> None:
        """Accept and record a write."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._record()
        self._answer(b"{}")

    def _record(self) -> None:
        if self.path != READY:
            authorized = "Authorization" in self.headers
            self.asked.append({"method": self.command, "path": self.path, "authorized": authorized})

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the probe comes every two seconds."""


def serve() -> None:
    """Serve until the pod ends."""
    options = EngineOptions(model="foreign", served_name="foreign")
    Engine.metrics, Engine.asked = EngineMetrics(options), []
    Engine.metrics.on_limits(at_start(options.limits))
    ThreadingHTTPServer(("0.0.0.0", contract.ADMIN_PORT), Engine).serve_forever()


def crash() -> None:
    """Exit at once, with the termination message of an engine."""
    message = {"reason": contract.REASON_MODEL_NOT_FOUND, "message": "this pod has no model"}
    Path(os.environ.get(contract.ENV_TERMINATION_MESSAGE, contract.TERMINATION_MESSAGE_PATH)).write_text(
        json.dumps(message)
    )
    sys.exit(contract.EXIT_CONFIG)


if __name__ == "__main__":
    {"serve": serve, "crash": crash}[sys.argv[1]]()
