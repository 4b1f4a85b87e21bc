"""One trace from a gateway to an engine, over an OTLP receiver: queue, prefill and decode are spans of the engine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from sluice import tracing
from sluice_gateway.replicas.static import parse_backend
from sluice_gateway.server import Gateway, GatewayOptions
from tests.engine.serving import CHAT, Served, body, serving
from tests.tracing.collector import Collector, ReceivedSpan, collector

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARTS = {"queue", "prefill", "decode"}


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as found:
        yield found


def environment(receiver: Collector) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def one(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = (span for span in spans if span.name == name)
    return found


async def ask(url: str, **headers: str) -> bytes:
    async with aiohttp.ClientSession() as session, session.post(url + CHAT, json=body(8), headers=headers) as answer:
        assert answer.status == 200
        return await answer.read()


async def through_a_gateway(served: Served, receiver: Collector, monkeypatch: pytest.MonkeyPatch) -> list[ReceivedSpan]:
    """The spans of one streamed request, as both processes sent them."""
    for name, value in environment(receiver).items():
        monkeypatch.setenv(name, value)
    backend = parse_backend(f"http://127.0.0.1:{served.port},http://127.0.0.1:{served.admin_port}")
    options = GatewayOptions(port=0, tracing=tracing.from_environment("sluice-gateway"))
    async with Gateway(lambda: [backend], options) as gateway:
        text = await ask(gateway.url, traceparent=CLIENT)
    assert b"[DONE]" in text
    return receiver.wait_for(5)


async def test_the_clients_trace_goes_on_through_gateway_and_engine(
    tiny_model: Path, tmp_path: Path, receiver: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tiny_model, tmp_path / "log", env=environment(receiver)) as served:
        spans = await through_a_gateway(served, receiver, monkeypatch)
    assert {span.trace.hex() for span in spans} == {CLIENT.split("-")[1]}
    gateway, engine = one(spans, f"gateway POST {CHAT}"), one(spans, f"POST {CHAT}")
    assert (gateway.service, engine.service) == ("sluice-gateway", "sluice-engine")
    assert gateway.parent.hex() == CLIENT.split("-")[2]
    assert engine.parent == gateway.id
    parts = [one(spans, name) for name in ("queue", "prefill", "decode")]
    assert {part.parent for part in parts} == {engine.id}
    times = [engine.begin, *(edge for part in parts for edge in (part.begin, part.end)), engine.end]
    assert all(later >= earlier - 1_000_000 for earlier, later in pairwise(times))
    assert (
        gateway.begin <= engine.begin + 1_000_000 and engine.begin <= gateway.end
    )  # it ends after its last bytes left
    assert engine.attributes["gen_ai.usage.output_tokens"] == "8"
    assert engine.attributes["sluice.request_id"] == gateway.attributes["sluice.request_id"]
    assert engine.attributes["http.response.status_code"] == gateway.attributes["http.response.status_code"] == "200"
    assert not any("content" in key or "prompt" in key for span in spans for key in span.attributes)


async def test_a_rejected_request_has_a_span_with_its_error_and_no_phases(
    tiny_model: Path, tmp_path: Path, receiver: Collector
) -> None:
    with serving(tiny_model, tmp_path / "log", env=environment(receiver)) as served:
        refused = served.request("POST", CHAT, {"model": "tiny", "messages": []})
        (span,) = receiver.wait_for(1)
    assert refused.status == 400
    assert (span.name, span.attributes["http.response.status_code"]) == (f"POST {CHAT}", "400")
    assert span.attributes["sluice.end"] == json.loads(refused.body)["error"]["code"]


def test_without_an_endpoint_there_are_no_traces() -> None:
    assert tracing.from_environment("sluice-engine", {}) is None
    assert tracing.from_environment("sluice-engine", {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) is None


def test_an_endpoint_without_the_extra_is_reported_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracing.from_environment("sluice-engine", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}) is None
    assert "pip install 'sluice[otel]'" in caplog.text


def test_processes_without_traces_load_no_opentelemetry() -> None:
    program = (
        "import sys, sluice_gateway.server, sluice_engine.server.app\n"
        "from sluice import tracing\n"
        "assert tracing.from_environment('sluice-engine', {}) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    roots = [str(Path(__file__).parents[2] / root) for root in ("operator", "engine")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
