"""Traces by OpenTelemetry, an extra: `pip install 'sluice[otel]'`. Off unless an OTLP endpoint is named.

A process measures its requests anyway. At their end it makes spans of these times, so a request costs one comparison when
traces are off. Only the context that goes on to the next process is made when a request begins (W3C traceparent).
"""

import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger("sluice.tracing")

# OpenTelemetry's own variables; any other (sampler, headers, timeouts) is read by its library.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FAILED: Final = 500  # HTTP status from which a span is an error

Attributes = Mapping[str, str | int | float | bool]


class RequestSpan:
    """The span of one request in one process. Times are monotonic seconds."""

    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        self._tracer = tracer
        self._span = span

    def headers(self) -> dict[str, str]:
        """Return the headers by which the next process continues the trace."""
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        found: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(found, set_span_in_context(self._span))
        return found

    def part(self, name: str, begin: float, end: float) -> None:
        """Record a phase of the request as a child span."""
        from opentelemetry.trace import set_span_in_context

        child = self._tracer.start_span(name, set_span_in_context(self._span), start_time=_epoch(begin))
        child.end(_epoch(max(begin, end)))

    def end(self, status: int | None, attributes: Attributes, at: float) -> None:
        """End the span. `status` is the HTTP status; None if the client left."""
        from opentelemetry.trace import StatusCode

        self._span.set_attributes(dict(attributes))
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
            if status >= _FAILED:
                self._span.set_status(StatusCode.ERROR)
        self._span.end(_epoch(at))


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("sluice")

    def begin(self, name: str, headers: Mapping[str, str], at: float) -> RequestSpan:
        """Begin the span of a request that came with these headers, at this time."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        given = {key: headers[key] for key in ("traceparent", "tracestate") if key in headers}
        parent = TraceContextTextMapPropagator().extract(given)
        span = self._tracer.start_span(name, parent, kind=SpanKind.SERVER, start_time=_epoch(at))
        return RequestSpan(self._tracer, span)

    def close(self) -> None:
        """Send what is left. Blocks up to the exporter's timeout."""
        self._provider.shutdown()


def from_environment(service: str, environment: Mapping[str, str] | None = None) -> Tracing | None:
    """Return the tracing of a process with this service name; None if no endpoint is named.

    An endpoint without the extra is reported and turns nothing on: a missing package must not stop a server.
    """
    env = os.environ if environment is None else environment
    endpoint = next((env[name] for name in ENDPOINTS if env.get(name)), None)
    if endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.error("no traces, although %s is named: %s is missing. pip install 'sluice[otel]'.", endpoint, error.name)
        return None
    named = {} if env.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    log.info("traces are sent to %s", endpoint)
    return Tracing(provider)


def _epoch(at: float) -> int:
    """Nanoseconds since 1970 of a monotonic time, by the clocks of this moment."""
    return time.time_ns() - round((time.monotonic() - at) * 1e9)
