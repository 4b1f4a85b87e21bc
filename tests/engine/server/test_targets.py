"""The targets file is read at start and polled; PATCH overrides it, and an invalid file changes nothing."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.limits import Limits
from sluice_engine.server.context import Serving
from sluice_engine.server.lifecycle import Lifecycle
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.targets import MAX_BYTES, TargetsFile, follow
from tests.engine.server.api.generation.test_handlers import FakeEngineClient
from tests.engine.serving import Served, serving

OPTIONS = engine_options(model="m", served_name="m", max_num_seqs=32, concurrency_max=32)
SPEC = {"max_concurrent": {"min": 4, "max": 16}, "itl_target_ms": 80, "ttft_target_ms": 6000}
TAKEN = Limits(concurrency_min=4, concurrency_max=16, itl_target=0.08, ttft_target=6.0)
STARTED = Limits(concurrency_min=1, concurrency_max=32, itl_target=0.05, ttft_target=2.0)


def written(folder: Path, content: Any) -> Path:
    path = folder / "targets.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_without_a_file_the_options_give_the_base_limits() -> None:
    file = TargetsFile(None, OPTIONS)
    assert not file.poll()
    assert file.limits == STARTED
    assert file.limits == OPTIONS.limits


def test_the_file_is_converted_to_seconds_and_read_once_per_change(tmp_path: Path) -> None:
    file = TargetsFile(written(tmp_path, SPEC), OPTIONS)
    assert file.poll()
    assert file.limits == TAKEN
    assert not file.poll()


def test_a_field_removed_from_the_file_returns_to_the_option(tmp_path: Path) -> None:
    path = written(tmp_path, SPEC)
    file = TargetsFile(path, OPTIONS)
    file.poll()
    written(tmp_path, {"itl_target_ms": 80, "ttft_target_ms": 6000})  # admission.mode: Off
    assert file.poll()
    assert file.limits == Limits(concurrency_min=1, concurrency_max=32, itl_target=0.08, ttft_target=6.0)


def test_a_range_above_the_buffers_is_lowered(tmp_path: Path) -> None:
    file = TargetsFile(written(tmp_path, {"max_concurrent": {"min": 64, "max": 256}}), OPTIONS)
    file.poll()
    assert (file.limits.concurrency_min, file.limits.concurrency_max) == (32, 32)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", json.dumps(SPEC).encode()[:-3], b"[]", b"7", b"\xff\xfe", b"[" * 20_000, b" " * (MAX_BYTES + 1),
        {"itl_target_ms": 0}, {"itl_target_ms": "80"}, {"itl_target_ms": None}, {"ttft_target_ms": 1e9},
        b'{"itl_target_ms": NaN}', {"max_concurrent": {"min": 9, "max": 3}}, {"max_concurrent": {"max": 0}},
        {"max_concurrent": 5}, {"max_queue": 5}, {"itl_ms": 80},
    ],
)  # fmt: skip
def test_an_invalid_file_logs_one_warning_and_keeps_the_last_valid_limits(
    tmp_path: Path, content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, SPEC)
    file = TargetsFile(path, OPTIONS)
    file.poll()
    written(tmp_path, content)
    with caplog.at_level(logging.WARNING):
        assert [file.poll() for _ in range(5)] == [False] * 5
    assert len(caplog.messages) == 1 and str(path) in caplog.messages[0]
    assert file.limits == TAKEN
    written(tmp_path, SPEC | {"itl_target_ms": 90})
    assert file.poll() and file.limits.itl_target == 0.09


def test_a_missing_file_keeps_the_limits_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TargetsFile(tmp_path / "targets.json", OPTIONS)
    assert not file.poll() and file.limits == STARTED
    path = written(tmp_path, SPEC)
    assert file.poll()
    path.unlink()
    assert not file.poll() and file.limits == TAKEN
    assert len(caplog.messages) == 2


async def test_each_change_of_the_file_is_passed_on_once(tmp_path: Path) -> None:
    """Runs five polls with an injected sleep; the file is replaced before the second and broken before the fourth."""
    path = written(tmp_path, SPEC)
    file = TargetsFile(path, OPTIONS)
    file.poll()
    polls, taken = 0, list[Limits]()

    async def tick(_: float) -> None:
        nonlocal polls
        polls += 1
        if polls == 2:
            written(tmp_path, SPEC | {"ttft_target_ms": 500})
        if polls == 4:
            written(tmp_path, b"{")
        if polls == 6:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await follow(file, taken.append, sleep=tick)
    assert [one.ttft_target for one in taken] == [0.5]


async def test_before_the_first_report_the_base_limits_are_published() -> None:
    metrics = EngineMetrics(OPTIONS)
    client = FakeEngineClient(metrics)
    desk = Serving(OPTIONS, metrics, Lifecycle(0.0, lambda: None), client)
    desk.set_base_limits(TAKEN)
    assert client.sent == [messages.BaseLimits(TAKEN)]
    assert desk.limits().limits == TAKEN
    assert f'{contract.ADMISSION_LIMIT}{{kind="concurrency_max"}} 16.0' in metrics.render().decode()
    desk.threads.shutdown()


def shown(served: Served) -> tuple[int, int, float, float]:
    found = served.admin("GET", contract.PATH_LIMITS).json()
    bounds = found["max_concurrent"]
    return bounds["min"], bounds["max"], found["itl_target_ms"], found["ttft_target_ms"]


def test_a_server_follows_its_targets_file_and_returns_to_it_after_a_patch(tiny_model: Path, tmp_path: Path) -> None:
    path = written(tmp_path, SPEC)
    with serving(tiny_model, tmp_path / "log", "--max-num-seqs", "32", "--targets-file", str(path)) as served:
        assert shown(served) == (4, 16, 80.0, 6000.0)
        patch = {"max_concurrent": {"min": 1, "max": 2}, "itl_target_ms": 20, "ttft_target_ms": 100, "ttl_seconds": 3}
        assert served.admin("PATCH", contract.PATH_LIMITS, patch).json()["max_concurrent"]["max"] == 2
        served.wait(lambda: shown(served) == (4, 16, 80.0, 6000.0))  # the TTL is not renewed
        written(tmp_path, b'{"itl_target_ms": ')
        served.wait(lambda: str(path) in served.log.read_text())
        assert shown(served) == (4, 16, 80.0, 6000.0)
        written(tmp_path, {"itl_target_ms": 70, "ttft_target_ms": 500})
        served.wait(lambda: shown(served) == (1, 32, 70.0, 500.0))
