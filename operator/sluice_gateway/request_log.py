"""One log line per posted request, at its end: its way through the fleet. Of what a client
wrote it holds the request id and the path."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.logs import FIELDS
from sluice.tracing import RequestSpan
from sluice_gateway.replicas.fleet import Attempt

log = logging.getLogger("sluice.gateway.request")


@dataclass(slots=True)
class RequestWay:
    """The way of one request. Times in seconds since it arrived; None means that it did not get so far."""

    request_id: str
    path: str
    began_at: float
    tenant: str | None = None
    model: str | None = None  # the name that a replica serves
    tried: list[str] = field(default_factory=list)  # "replica" or "replica (why it was left)", in order
    chosen_by: str | None = None
    expected_tokens: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    held_seconds: float = 0.0  # while no replica was ready
    queued_seconds: float = 0.0  # while all were at their limits
    first_byte_seconds: float | None = None
    error: str | None = None
    span: RequestSpan | None = None  # None: no traces

    def tries(self, attempt: Attempt) -> None:
        """The request is sent to a replica."""
        state = attempt.state
        self.tried.append(state.backend.name)
        if self.model is None and state.load is not None:
            self.model = state.load.model

    @property
    def waited_seconds(self) -> float:
        """In the gateway, before it was sent to a replica."""
        return self.held_seconds + self.queued_seconds

    @property
    def names(self) -> list[str]:
        """The tried replicas."""
        return [one.partition(" (")[0] for one in self.tried]

    def left(self, why: str) -> None:
        """The last tried replica did not answer."""
        self.tried[-1] += f" ({why})"

    def trace(self, status: int | None, now: float) -> None:
        """End the span of the request, if there is one, `now` in monotonic seconds."""
        if self.span is None:
            return
        if self.waited_seconds:
            self.span.part("wait", self.began_at, self.began_at + self.waited_seconds)
        attributes = {
            "http.request.method": "POST",
            "url.path": self.path,
            "sluice.request_id": self.request_id,
            "sluice.replicas": ", ".join(self.tried),
        }
        if self.model is not None:
            attributes["gen_ai.request.model"] = self.model
        if self.error is not None:
            attributes["sluice.end"] = self.error
        self.span.end(status, attributes, now)

    def log(self, status: int | None, now: float) -> None:
        """Write the line; `status` is None if the client left."""
        if not log.isEnabledFor(logging.INFO):
            return
        fields = {
            "request": self.request_id,
            "path": self.path,
            "tenant": self.tenant,
            "model": self.model,
            "status": status,
            "way": self.tried,
            "chosen_by": self.chosen_by,
            "prompt_tokens": round(self.prompt_tokens) or None,
            "cached_tokens": round(self.cached_tokens) if self.prompt_tokens else None,
            "expected_cached_tokens": round(self.expected_tokens) if self.prompt_tokens else None,
            "held_ms": round(self.held_seconds * 1000, 1) or None,
            "queued_ms": round(self.queued_seconds * 1000, 1) or None,
            "first_byte_ms": None if self.first_byte_seconds is None else round(self.first_byte_seconds * 1000, 1),
            "total_ms": round((now - self.began_at) * 1000, 1),
            "error": self.error,
        }
        known = {name: value for name, value in fields.items() if value is not None}
        log.info("%s", _sentence(known), extra={FIELDS: known})


def _sentence(fields: Mapping[str, object]) -> str:
    """`chat 200: r1 (lost) → r2 by retry, 1500 prompt tokens (1024 cached, 1088 expected), 820 ms, id …`."""
    tried = fields["way"]
    way = " → ".join(tried) if isinstance(tried, list) and tried else "no replica"
    parts = [f"{way} by {fields['chosen_by']}" if "chosen_by" in fields else way]
    if "prompt_tokens" in fields:
        parts.append(
            f"{fields['prompt_tokens']} prompt tokens ({fields['cached_tokens']} cached, "
            f"{fields['expected_cached_tokens']} expected)"
        )
    if "held_ms" in fields:
        parts.append(f"held {fields['held_ms']} ms")
    if "queued_ms" in fields:
        parts.append(f"queued {fields['queued_ms']} ms")
    first = f" (first byte {fields['first_byte_ms']})" if "first_byte_ms" in fields else ""
    parts.append(f"{fields['total_ms']} ms{first}")
    error = f" {fields['error']}" if "error" in fields else ""
    return f"{fields.get('model', '–')} {fields.get('status', '–')}{error}: {', '.join(parts)}, id {fields['request']}"
