"""Process lifecycle: drains, crashes, exit codes. Steps are paced so that streams last long enough for the test."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice import contract
from tests.engine.serving import (
    CHAT,
    Reader,
    Served,
    body,
    engine_processes,
    gone,
    poll,
    refused,
    serving,
    start,
)

PACE = ("--pace", "base=0.02")


@contextmanager
def streaming(served: Served, count: int, tokens: int) -> Iterator[list[Reader]]:
    """Opens `count` streams and reads past the first token of each."""
    generated = served.metric("sluice_generated_tokens_total")
    readers = [Reader(served, body(tokens)) for _ in range(count)]
    served.wait(lambda: served.metric("sluice_requests_running") == count)
    served.wait(lambda: served.metric("sluice_generated_tokens_total") > generated + count)
    yield readers
    for reader in readers:
        reader.join(60)


def test_sigterm_serves_during_the_grace_period_then_rejects_and_completes_all_streams(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serving(tiny_model, tmp_path / "log", *PACE, "--grace-seconds", "4") as served:
        engine = served.engine_pid()
        with streaming(served, 4, 350) as readers:  # 7 s and more
            served.signal(signal.SIGTERM)
            served.wait(lambda: served.admin("GET", "/readyz").status == 503)
            assert not refused(served)  # endpoints lag, so late clients are served
            assert served.admin("GET", "/livez").status == 200
            served.wait(lambda: refused(served))
        assert [(reader.status, reader.last_event) for reader in readers] == [(200, b"data: [DONE]")] * 4
        assert served.process.wait(60) == contract.EXIT_OK
        assert gone(engine)


def test_past_the_drain_budget_streams_get_an_error_event_and_the_process_ends(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serving(tiny_model, tmp_path / "log", *PACE, "--drain-seconds", "0.5") as served:
        with streaming(served, 4, 1500) as readers:
            whole = Reader(served, body(1500, stream=False))
            served.wait(lambda: served.metric("sluice_requests_running") == 5)
            served.signal(signal.SIGINT)
            assert served.process.wait(20) == contract.EXIT_FAILED  # the streams would take 30 s and more
        for reader in readers:
            error = json.loads(reader.last_event.removeprefix(b"data: "))["error"]
            assert error["code"] == "draining"
        whole.join(60)
        assert whole.status == 503


def test_a_second_signal_ends_at_once(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tiny_model, tmp_path / "log", *PACE, "--grace-seconds", "30") as served:
        engine = served.engine_pid()
        with streaming(served, 1, 1500):
            served.signal(signal.SIGINT)
            served.wait(lambda: served.admin("GET", "/readyz").status == 503, 8)
            served.signal(signal.SIGINT)
            assert served.process.wait(15) == contract.EXIT_FAILED  # the stream, and the grace, would take 30 s
        assert gone(engine)


def test_a_killed_engine_fails_its_requests_and_ends_the_process(tiny_model: Path, tmp_path: Path) -> None:
    termination = tmp_path / "termination"
    env = {contract.ENV_TERMINATION_MESSAGE: str(termination)}
    with serving(tiny_model, tmp_path / "log", *PACE, env=env) as served:
        with streaming(served, 2, 1500) as readers:
            whole = Reader(served, body(1500, stream=False))
            served.wait(lambda: served.metric("sluice_requests_running") == 3)
            os.kill(served.engine_pid(), signal.SIGKILL)
            assert served.process.wait(60) == contract.EXIT_ENGINE_DIED
        for reader in readers:
            error = json.loads(reader.last_event.removeprefix(b"data: "))["error"]
            assert (error["type"], error["code"]) == ("server_error", "internal_error")
        whole.join(60)
        assert whole.status == 500
        said = json.loads(termination.read_text())
        assert said["reason"] == contract.REASON_ENGINE_CRASHED
        assert "SIGKILL" in said["message"]


def test_sigterm_while_loading_ends_at_once_and_leaves_no_engine(tiny_model: Path, tmp_path: Path) -> None:
    served, engines = start(tiny_model, tmp_path / "log", "--grace-seconds", "30"), []
    try:
        poll(lambda: bool(engine_processes(served)), 60, served.log)
        engines = engine_processes(served)
        (engine,) = engines
        os.kill(engine, signal.SIGSTOP)  # keeps the server in the loading phase
        poll(lambda: answering(served.admin_port), 60, served.log)
        assert served.admin("GET", "/livez").status == 200
        loading = served.admin("GET", "/readyz")
        assert (loading.status, loading.json()["status"]) == (503, "loading")
        early = served.request("POST", CHAT, body(1))
        assert (early.status, early.error["code"]) == (503, "loading")
        assert int(early.headers["retry-after"]) >= 1
        assert served.metric("sluice_requests_arrived_total") == 1  # a fleet whose replicas are all loading is not idle
        assert served.metric("sluice_rejections_total", reason="loading") == 1
        served.signal(signal.SIGTERM)
        os.kill(engine, signal.SIGCONT)
        assert served.process.wait(25) == contract.EXIT_OK  # without the grace of 30 s
        assert gone(engine)
    finally:
        served.process.kill()
        served.process.wait(60)
        for engine in engines:
            if not gone(engine):
                os.kill(engine, signal.SIGKILL)


def answering(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def run(model: Path, log: Path, *options: str, env: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """Runs a start that fails. Returns the exit code and all output lines that are not log lines."""
    served = start(model, log, *options, env=env)
    try:
        code = served.process.wait(120)
    except subprocess.TimeoutExpired:
        served.process.kill()
        raise
    return code, [line for line in log.read_text().splitlines() if not line.startswith("{") and " INFO " not in line]


def test_a_taken_port_is_named_with_its_option(tiny_model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for option in ("--port", "--admin-port"):
            code, said = run(tiny_model, tmp_path / "log", option, port)
            assert code == contract.EXIT_USAGE
            assert said == [f"Port {port} on 127.0.0.1 is taken; choose another with {option}."]


def test_a_bad_option_is_one_sentence_from_flag_or_environment(tiny_model: Path, tmp_path: Path) -> None:
    expected = "--max-num-seqs must be an integer between 1 and 65536; not 'many'."
    assert run(tiny_model, tmp_path / "log", "--max-num-seqs", "many") == (contract.EXIT_USAGE, [expected])
    env = {"SLUICE_MAX_NUM_SEQS": "many"}
    assert run(tiny_model, tmp_path / "log", env=env) == (contract.EXIT_USAGE, [expected])


def test_a_missing_model_says_its_path_and_what_to_do(tmp_path: Path) -> None:
    termination = tmp_path / "termination"
    missing = tmp_path / "no" / "model"
    code, said = run(missing, tmp_path / "log", env={contract.ENV_TERMINATION_MESSAGE: str(termination)})
    assert code == contract.EXIT_CONFIG
    assert len(said) == 1
    assert str(missing) in said[0]
    assert "sluice model tiny" in said[0]
    message = json.loads(termination.read_text())
    assert message == {"reason": contract.REASON_MODEL_NOT_FOUND, "message": said[0]}


def test_a_folder_without_a_model_is_reported_as_invalid(tiny_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((tiny_model / "config.json").read_text())
    termination = tmp_path / "termination"
    code, said = run(broken, tmp_path / "log", env={contract.ENV_TERMINATION_MESSAGE: str(termination)})
    assert code == contract.EXIT_CONFIG
    assert len(said) == 1
    assert json.loads(termination.read_text())["reason"] == contract.REASON_MODEL_INVALID


def test_a_missing_accelerator_is_an_error_and_never_a_fallback(tiny_model: Path, tmp_path: Path) -> None:
    termination = tmp_path / "termination"
    env = {contract.ENV_TERMINATION_MESSAGE: str(termination), "CUDA_VISIBLE_DEVICES": ""}
    code, said = run(tiny_model, tmp_path / "log", "--device", "cuda", env=env)
    assert code == contract.EXIT_CONFIG
    assert len(said) == 1, said  # one sentence, no traceback
    assert json.loads(termination.read_text()) == {"reason": contract.REASON_ACCELERATOR_NOT_FOUND, "message": said[0]}
    for step in ("that the pod requests a GPU", "torch is a CUDA build", "--device cpu"):
        assert step in said[0]
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log and "on cpu" not in log  # no fallback to the CPU


# Every Python process of the server loads this; it affects only the engine process.
RAISING = """
import sys
if "sluice_engine.core.process" in sys.orig_argv:
    from sluice_engine.core.engine import EngineLoop
    step = EngineLoop.step
    def raising(self):
        if any(request.generated > 4 for request in self.scheduler.requests.values()):
            raise ValueError("no such row")
        return step(self)
    EngineLoop.step = raising
"""


def test_a_step_that_raises_fails_its_requests_and_says_why_in_log_and_termination_message(
    tiny_model: Path, tmp_path: Path
) -> None:
    termination, log = tmp_path / "termination", tmp_path / "log"
    (tmp_path / "sitecustomize.py").write_text(RAISING)
    roots = (str(Path(__file__).parents[3] / root) for root in ("operator", "engine", "kernels"))
    env = {
        contract.ENV_TERMINATION_MESSAGE: str(termination),
        "PYTHONPATH": os.pathsep.join((str(tmp_path), *roots)),
    }
    with serving(tiny_model, log, "--pace", "base=0.3", env=env) as served:
        reader, whole = Reader(served, body(100)), Reader(served, body(100, stream=False))
        assert served.process.wait(60) == contract.EXIT_ENGINE_DIED
        for client in (reader, whole):
            client.join(60)
    assert json.loads(reader.last_event.removeprefix(b"data: "))["error"]["code"] == "internal_error"
    assert whole.status == 500
    said = json.loads(termination.read_text())
    expected = {"reason": contract.REASON_ENGINE_CRASHED, "message": "The engine crashed: ValueError: no such row."}
    assert said == expected
    logged = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    tracebacks = [line["exception"] for line in logged if "exception" in line]
    assert any("Traceback" in each and 'raise ValueError("no such row")' in each for each in tracebacks)
