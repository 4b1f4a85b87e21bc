"""The comparison over HTTP: its bars are against the better peer, and a server that does not start is an error with its words."""

import sys
from pathlib import Path

import pytest

from tests.bench.processes.server import ServerFailed, free_ports
from tests.bench.serving.report import Found, rows
from tests.bench.serving.server import Command, started


def found(*runs: tuple[float, float, float]) -> tuple[list[Found], list[Found]]:
    """Runs of (tokens/s, TTFT of the short load, TTFT of the long prompt)."""
    return [Found(rate, ttft) for rate, ttft, _ in runs], [Found(0.0, long) for *_, long in runs]


def test_medians_are_compared_with_the_better_peer_of_each_figure() -> None:
    ours = found((100, 2.0, 30.0), (150, 1.0, 40.0), (160, 9.0, 50.0))
    slow, fast = found((50, 1.9, 80.0)), found((100, 4.0, 40.0))
    speed, first, long = rows({"ours": ours, "vllm": slow, "vllm-cores": fast})[3:]
    assert (speed.value, speed.met) == ("1.5 ×", True)
    assert (first.value, first.met) == ("1.05 ×", False)
    assert (long.value, long.met) == ("1 ×", True)


async def test_a_server_that_ends_before_it_is_ready_is_reported_with_its_last_words(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = Command([sys.executable, "-c", "import sys; sys.exit('no such model')"], port, "/health", {})
    with pytest.raises(ServerFailed, match="no such model"):
        async with started(command, tmp_path / "log"):
            pass
