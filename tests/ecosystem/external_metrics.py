"""A server of the external metrics API with one metric, whose value a test sets."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.threaded_server import served

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"


@dataclass
class ExternalMetrics:
    """`value` is what the autoscaler reads next."""

    port: int = 0
    value: int = 0
    asked: int = 0

    def objects(self) -> list[dict[str, Any]]:
        """What makes the API server pass the group on to this server."""
        service = {"name": "external-metrics", "namespace": "default"}
        return [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": service,
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
            },
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{VERSION}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "version": VERSION,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": service | {"port": self.port},
                },
            },
        ]

    def answer(self, path: str) -> dict[str, Any]:
        """The document of a path: the group's resources, or the metric's value."""
        where = f"/apis/{GROUP}/{VERSION}"
        if not path.startswith(f"{where}/namespaces/"):
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [],
            }
        self.asked += 1
        item = {
            "metricName": path.partition("?")[0].rpartition("/")[2],
            "metricLabels": {},
            "timestamp": "2026-11-25T00:00:00Z",
            "value": str(self.value),
        }
        return {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": [item]}


@contextmanager
def serving(certificate: Path, key: Path) -> Iterator[ExternalMetrics]:
    """Serve by TLS on a free port of this machine."""
    found = ExternalMetrics()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(found.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = int(server.server_address[1])
    with served(server):
        yield found
