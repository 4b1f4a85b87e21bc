"""Ten thousand requests at once at one engine: each is answered, or told when to come again, and memory stays bounded."""

import json
from pathlib import Path
from typing import Final

import pytest

from sluice import contract
from tests.burst import KEYS, RATE, REQUESTS, allow_files, burst, memory
from tests.engine.server.auth.keys import key_of
from tests.engine.serving import body, serving

PLACES: Final = 32
QUEUE: Final = 128
AT_ONCE: Final = (
    4_000  # the kernel drops what waits for a minute behind the 4,096 connections that it keeps for a server
)
MOST_MORE: Final = 150e6  # bytes of memory of either process, while all are connected
OPTIONS: Final = (
    "--max-num-seqs", str(PLACES), "--concurrency-min", str(PLACES), "--max-queue", str(QUEUE), "--pace", "base=0.1",
)  # fmt: skip
ASKED: Final = json.dumps(body(4, stream=False)).encode()


@pytest.mark.timeout(600)
async def test_ten_thousand_requests_at_once_are_200_429_or_503_and_the_engine_serves_on(
    tiny_model: Path, tmp_path: Path
) -> None:
    allow_files()
    (tmp_path / "keys.yaml").write_bytes(KEYS)
    keys = ("--api-keys-file", str(tmp_path / "keys.yaml"))
    with serving(tiny_model, tmp_path / "log", *OPTIONS, *keys) as served:
        served.key, engine = key_of("free"), served.engine_pid()
        pids = (served.process.pid, engine)
        before = [memory(pid, "VmRSS") for pid in pids]
        statuses = await burst(served.port, ASKED, at_once=AT_ONCE)
        peaks = [memory(pid, "VmHWM") for pid in pids]
        assert served.request("POST", contract.PATH_CHAT_COMPLETIONS, ASKED).status == 200
        assert served.admin("GET", contract.PATH_LIVEZ).status == 200
        served.wait(lambda: served.blocks()["held"] == 0)
        assert served.engine_pid() == engine
    assert statuses.keys() == {200, 429, 503}
    assert statuses.total() == REQUESTS
    assert statuses[200] >= PLACES
    assert statuses[429] >= REQUESTS / 2 - 2 * RATE  # a bucket holds a minute of its rate, and fills during the burst
    assert max(peak - resident for peak, resident in zip(peaks, before, strict=True)) <= MOST_MORE
