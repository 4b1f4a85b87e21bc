"""An OTLP receiver (HTTP, protobuf) that keeps the spans it is sent."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.threaded_server import served


@dataclass(frozen=True)
class ReceivedSpan:
    """One span. Times are nanoseconds since 1970."""

    service: str
    name: str
    trace: bytes
    id: bytes
    parent: bytes
    begin: int
    end: int
    attributes: dict[str, str]


@dataclass
class Collector:
    """`url` is the endpoint for OTEL_EXPORTER_OTLP_ENDPOINT."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int, seconds: float = 60.0) -> list[ReceivedSpan]:
        """Return the spans once there are so many. Raises AssertionError if that takes too long."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= count, seconds), [each.name for each in self.spans]
            return list(self.spans)

    def receive(self, body: bytes) -> None:
        """Keep the spans of one export."""
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            for resource in request.resource_spans:
                labels = {each.key: each.value.string_value for each in resource.resource.attributes}
                self.spans += [
                    ReceivedSpan(
                        labels["service.name"], span.name, span.trace_id, span.span_id, span.parent_span_id,
                        span.start_time_unix_nano, span.end_time_unix_nano,
                        {each.key: each.value.string_value or str(each.value.int_value) for each in span.attributes},
                    )
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]  # fmt: skip
            self.changed.notify_all()


@contextmanager
def collector() -> Iterator[Collector]:
    """A receiver on a free port of this machine."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.receive(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    with served(server):
        yield found
