"""`sluice bench` on a terminal: its report, its report at Ctrl-C, failures, and a profile that `simulate` takes."""

import shutil
from pathlib import Path

import pytest

from sluice.contract import STEP_MODEL_TERMS
from tests.screens.golden import compare
from tests.screens.scripted_server import Reply, scripted
from tests.screens.terminal import CTRL_C, ROOT, Terminal

MASKS = {
    r"in [\d.]+ s, [\d.]+ requests/s": "in # s, # requests/s",
    r"[\d.]+ tokens/s": "# tokens/s",
    r" {2,}\d+\.\d ms": "  # ms",
}
SPEED = {r"[\d.]+ s of one core: \d+ ×": "# s of one core: # ×"}


@pytest.mark.parametrize("columns", [80, 120])
def test_a_report(columns: int) -> None:
    refused = Reply(status=503, message="full", headers={"retry-after-ms": "1"})
    replies = refused, *[Reply("one two three")] * 10, Reply("half", then="cut"), Reply("one two three")
    options = ("--requests", "20", "--concurrency", "1", "--ttft-ms", "60000", "--itl-ms", "60000")
    with scripted(*replies) as server, Terminal("bench", server.url, *options, columns=columns) as terminal:
        assert terminal.finish() == 1
        compare(f"bench-{columns}", terminal, MASKS)


def test_ctrl_c_reports_what_has_finished_and_exits_with_130(tmp_path: Path) -> None:
    replies = *[Reply("one two three")] * 6, Reply("half", then="held")
    options = ("--concurrency", "2", "--record", "record.jsonl")
    with (
        scripted(*replies) as server,
        Terminal("bench", server.url, *options, columns=80, folder=tmp_path) as terminal,
    ):
        terminal.wait_for("6/100")  # the other two in flight are held
        terminal.send(CTRL_C)
        assert terminal.finish() == 130
        compare("bench-ctrl-c-80", terminal, MASKS)
    assert len((tmp_path / "record.jsonl").read_text().splitlines()) == 6


def test_a_profile_is_measured_and_simulated_with(tmp_path: Path) -> None:
    date = {r"\d{4}-\d\d-\d\d": "DATE"}
    with scripted(Reply("one two")) as server:
        server.metrics = METRICS
        options = ("--profile-out", "machine.json", "--admin-url", server.url)
        with Terminal("bench", server.url, *options, columns=80, folder=tmp_path) as terminal:
            assert terminal.finish() == 0
            compare("bench-profile-80", terminal, date)
    shutil.copy(ROOT / "crds/samples/local.yaml", tmp_path)
    load = ("--rate", "2", "--seconds", "60", "--mode", "coarse", "--profile", "machine.json")
    with Terminal("simulate", "local.yaml", *load, columns=80, folder=tmp_path) as terminal:
        assert terminal.finish() == 0
        compare("simulate-profile-80", terminal, SPEED | date)


def test_a_measurement_ends_before_its_load_where_the_admin_port_is_not_that_of_an_engine() -> None:
    with scripted(Reply("one")) as server:
        server.metrics = "another_program 1\n"
        options = ("--profile-out", "machine.json", "--admin-url", server.url)
        with Terminal("bench", server.url, *options, columns=80) as terminal:
            assert terminal.finish() == 1
            assert "name its admin port" in " ".join(terminal.screen().split())
    assert server.requests == []


def _metrics() -> str:
    """What an engine publishes of itself, as far as a profile needs it."""
    seconds = dict(zip(STEP_MODEL_TERMS, (0.004, 0.00009, 0.00000002, 0.0015, 0.000000022), strict=True))
    lines = [f'sluice_step_model_seconds{{term="{term}"}} {value}' for term, value in seconds.items()]
    lines += [
        f'sluice_admission_limit{{kind="{kind}"}} 32' for kind in ("concurrency", "concurrency_min", "concurrency_max")
    ]
    lines += [
        f"sluice_{name} {value}"
        for name, value in {
            "requests_running": 0, "requests_waiting": 0, "tokens_in_flight": 0, "kv_occupancy_ratio": 0,
            "kv_blocks": 512, "step_model_error_ratio": 0.07, "step_model_steps": 900,
        }.items()
    ]  # fmt: skip
    lines += ['sluice_model_info{version="1",dtype="float32",model="scripted"} 1']
    lines += ['sluice_cache_config_info{block_size="16",num_blocks="512"} 1', "sluice_paced 0"]
    return "\n".join(lines) + "\n"


METRICS = _metrics()
