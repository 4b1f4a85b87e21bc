"""One log line per POST request, at its end: tokens and times, or the error. It holds nothing that a client wrote.

Handlers fill in the entry of their request, and the router logs it.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from sluice.auth.caller import CALLER
from sluice.logs import FIELDS
from sluice_engine.server.context import request_id_of
from sluice_engine.server.usage import Usage

DISCONNECTED: Final = "client disconnected"

log = logging.getLogger("sluice.request")


@dataclass(slots=True)
class RequestEntry:
    """What is known of one request. Times are monotonic seconds; None means that it did not get so far."""

    arrived_at: float
    usage: Usage | None = None
    queue_seconds: float | None = None
    first_at: float | None = None  # time of the first token, or of the vectors
    finish: str | None = None  # finish reasons of its samples
    error: str | None = None  # code of the error


_ENTRY: Final = web.RequestKey("log_entry", RequestEntry)


def entry_of(request: web.BaseRequest) -> RequestEntry:
    """Returns the entry of the request. The first call begins it."""
    entry = request.get(_ENTRY)
    if entry is None:
        entry = request[_ENTRY] = RequestEntry(time.monotonic())
    return entry


def log_end(request: web.BaseRequest, model: str, status: int | None) -> None:
    """Logs the end of a request. `status` is the HTTP status; None if the client did not receive the response."""
    if not log.isEnabledFor(logging.INFO):
        return
    entry = entry_of(request)
    if status is None:
        entry.error = entry.error or DISCONNECTED
    fields = {"request": request_id_of(request), "path": request.rel_url.raw_path, "model": model, "status": status}
    if (caller := request.get(CALLER)) is not None:
        fields["key"] = caller.tenant or None
    fields |= _figures(entry, time.monotonic())
    known = {name: value for name, value in fields.items() if value is not None}
    log.info("%s", sentence(known), extra={FIELDS: known})


def sentence(fields: dict[str, Any]) -> str:
    """Returns the fields as text: `chat 200 length: 12 prompt (8 cached) + 64 output tokens, 823 ms …`."""
    end = fields.get("error") or fields.get("finish") or "done"
    key = f", key {fields['key']}" if "key" in fields else ""
    return (
        f"{fields['model']} {fields.get('status', '–')} {end}: {', '.join(_parts(fields))}{key}, id {fields['request']}"
    )


def _parts(fields: dict[str, Any]) -> Iterator[str]:
    if "prompt_tokens" in fields:
        yield (
            f"{fields['prompt_tokens']} prompt ({fields['cached_tokens']} cached) + "
            f"{fields['output_tokens']} output tokens"
        )
    waits = [
        f"{word} {fields[name]:g}"
        for word, name in (("queue", "queue_ms"), ("first token", "ttft_ms"))
        if name in fields
    ]
    yield f"{fields['total_ms']:g} ms" + (f" ({', '.join(waits)})" if waits else "")


def _figures(entry: RequestEntry, now: float) -> dict[str, Any]:
    usage = entry.usage
    return {
        "prompt_tokens": usage and usage.prompt,
        "cached_tokens": usage and usage.cached,
        "output_tokens": usage and usage.completion,
        "queue_ms": _milliseconds(entry.queue_seconds),
        "ttft_ms": None if entry.first_at is None else _milliseconds(entry.first_at - entry.arrived_at),
        "total_ms": _milliseconds(now - entry.arrived_at),
        "finish": entry.finish if entry.error is None else None,
        "error": entry.error,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
