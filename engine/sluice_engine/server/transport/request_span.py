"""The spans of one request in an engine: queue, prefill and decode, from the times of its log entry."""

from aiohttp import web

from sluice.tracing import Tracing
from sluice_engine.server.context import request_id_of
from sluice_engine.server.request_log import RequestEntry


def record_spans(
    tracing: Tracing, request: web.BaseRequest, entry: RequestEntry, model: str, status: int | None, now: float
) -> None:
    """Record a request that ended `now` (monotonic seconds). Phases that it did not reach have no span."""
    path = request.rel_url.raw_path
    span = tracing.begin(f"POST {path}", request.headers, entry.arrived_at)
    if entry.queue_seconds is not None:
        scheduled_at = entry.arrived_at + entry.queue_seconds
        first_at = now if entry.first_at is None else max(entry.first_at, scheduled_at)
        span.part("queue", entry.arrived_at, scheduled_at)
        span.part("prefill", scheduled_at, first_at)
        if entry.first_at is not None:
            span.part("decode", first_at, now)
    attributes: dict[str, str | int] = {
        "http.request.method": "POST",
        "url.path": path,
        "gen_ai.request.model": model,
        "sluice.request_id": request_id_of(request),
    }
    if entry.usage is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": entry.usage.prompt,
            "gen_ai.usage.output_tokens": entry.usage.completion,
            "sluice.cached_tokens": entry.usage.cached,
        }
    if (end := entry.error or entry.finish) is not None:
        attributes["sluice.end"] = end
    span.end(status, attributes, now)
