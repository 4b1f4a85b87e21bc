"""The log of a serving engine: a line per request with tokens and times, and a line per change of its limit."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice.logs import FIELDS
from sluice_engine import messages
from sluice_engine.limits import LimitsInForce, at_start
from sluice_engine.server.lifecycle import Lifecycle, Phase
from sluice_engine.server.limit_log import LimitLog
from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.test_metrics import OPTIONS, Story
from tests.engine.server.transport.test_connection_limits import until

CHAT = {"messages": [{"role": "user", "content": "What is a token?"}]}


@pytest.fixture
async def desk(tiny_model: Path) -> AsyncIterator[Desk]:
    async for each in desk_of(tiny_model, "generate"):
        yield each


def lines(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    """The fields of the records of this logger, with their message."""
    return [{"text": each.getMessage()} | getattr(each, FIELDS) for each in caplog.records if each.name == name]


async def test_a_finished_request_is_a_line_with_its_tokens_and_times(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    call = desk.post("/v1/chat/completions", CHAT)
    await until(lambda: bool(desk.client.sent))
    submitted = desk.client.sent[0]
    name = submitted.request_id
    desk.client.say(desk.story.report(messages.Delta(name, (5,), cached_tokens=3, queue_seconds=0.25)))
    desk.client.say(desk.story.report(messages.Delta(name, (6,), "length")))
    assert (await call)[0] == 200
    (line,) = lines(caplog, "sluice.request")
    wanted = {
        "model": "m", "path": "/v1/chat/completions", "status": 200, "finish": "length",
        "prompt_tokens": len(submitted.prompt_token_ids), "cached_tokens": 3, "output_tokens": 2, "queue_ms": 250.0,
    }  # fmt: skip
    assert line.items() >= wanted.items() and "error" not in line
    assert 0 < line["ttft_ms"] <= line["total_ms"]
    assert f"{wanted['prompt_tokens']} prompt (3 cached) + 2 output tokens" in line["text"]


async def test_a_rejected_and_an_invalid_request_are_lines_with_their_error(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rejected = desk.post("/v1/chat/completions", CHAT)
    await until(lambda: bool(desk.client.sent))
    desk.client.say(messages.Rejected(desk.client.sent[0].request_id, "queue_full", 1.0, "The queue is full."))
    assert (await rejected)[0] == 503
    assert (await desk.post("/v1/chat/completions", CHAT | {"model": "secret\nname"}))[0] == 404
    first, second = lines(caplog, "sluice.request")
    assert (first["status"], first["error"], "finish" in first) == (503, "queue_full", False)
    assert (second["status"], second["error"], "prompt_tokens" in second) == (404, "model_not_found", False)
    assert "secret" not in str(second)  # nothing that a client wrote, so that no client can forge a line


async def test_a_request_whose_client_disconnects_is_a_line(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    call = desk.post("/v1/chat/completions", CHAT)
    await until(lambda: bool(desk.client.sent))
    call.cancel()
    await until(lambda: bool(lines(caplog, "sluice.request")))
    (line,) = lines(caplog, "sluice.request")
    assert line["error"] == "client disconnected" and "status" not in line


def limited(concurrency: int, reason: str) -> messages.StepReport:
    in_force = replace(at_start(OPTIONS.limits), concurrency=concurrency, reason=reason)
    return msgspec.structs.replace(Story().report(held=4), limits=in_force, model=(0.07, 0.002, 0.0, 0.0, 0.0))


def limit_log() -> LimitLog:
    started: LimitsInForce = at_start(OPTIONS.limits)
    return LimitLog(started)


def test_a_limit_that_the_latency_target_sets_is_a_warning_with_advice_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, most = limit_log(), OPTIONS.limits.concurrency_max
    for concurrency in (2, 2, 3):
        log.on_step(limited(concurrency, "itl"))
    first, second = lines(caplog, "sluice.limits")
    assert (first["from"], first["to"], first["reason"]) == (most, 2, "itl")
    assert "72 ms with one request" in first["text"] and "--itl-ms" in first["text"]
    assert second["text"] == "concurrency limit 2 → 3: set by the inter-token latency target"
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


def test_a_limit_that_memory_sets_names_the_blocks_and_the_way_back_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, most = limit_log(), OPTIONS.limits.concurrency_max
    for concurrency, reason in ((1, "kv"), (most, "bounds"), (most, "cold")):
        log.on_step(limited(concurrency, reason))
    first, second = lines(caplog, "sluice.limits")
    assert "4 of 10 blocks held" in first["text"] and "--kv-size" in first["text"]
    assert (second["from"], second["to"], second["reason"]) == (1, most, "bounds")


def test_a_drain_without_grace_rejects_at_once() -> None:
    rejecting: list[Phase] = []
    lifecycle = Lifecycle(3600.0, lambda: rejecting.append(lifecycle.phase))
    lifecycle.loaded()
    lifecycle.drain(grace=False)
    assert rejecting == [Phase.REJECTING] and lifecycle.closing
