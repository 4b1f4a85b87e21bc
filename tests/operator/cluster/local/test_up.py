"""`sluice up`: what it refuses, what it shows, and how it ends."""

import asyncio
import io
import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from rich.console import Console

from e2e.demo.fleet import descendants
from sluice.logs import JsonLines, TextLines
from sluice.up.fault import permanent_fault
from sluice.up.file import read_local_resource
from sluice.up.show import LiveTable, LogLines
from sluice.up.snapshot import PodLine, Snapshot, why
from sluice_engine.tiny import ensure
from sluice_operator.api.yaml_file import BadFile
from tests.hub_server import HubServer
from tests.operator.cluster.local.up_process import YAML, run_up, sluice_up, written


@pytest.fixture(scope="module")
def model() -> Path:
    return ensure()


@pytest.fixture
def good(tmp_path: Path, model: Path) -> Path:
    return written(tmp_path, YAML.format(uri=model.as_uri()))


def test_each_fault_of_a_file_is_one_sentence_on_stderr_with_its_field(tmp_path: Path) -> None:
    text = YAML.format(uri="ftp://x") + "  scaling: {minReplicas: 3, maxReplicas: two}\n  slos: {}\n"
    result = run_up(written(tmp_path, text))
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    for field in ("spec.model.uri", "spec.scaling.maxReplicas", "spec.slos"):
        assert sum(line.startswith(field) for line in lines) == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: [1", "not YAML"),
        ("", "no LLMDeployment"),
        ("- 1\n", "mapping"),
        ("kind: Deployment\n", "kind must be LLMDeployment"),
        ("kind: LLMDeployment\n---\nkind: LLMDeployment\n", "2 LLMDeployments"),
        ("!!python/object/apply:os.system ['true']\n", "not YAML"),
        (YAML.format(uri="pvc://claim/x"), "file:///"),
        (YAML.format(uri="file:///no/such/folder"), "/no/such/folder"),
    ],
)
def test_a_file_that_cannot_come_up_says_why(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(BadFile) as caught:
        read_local_resource(written(tmp_path, text))
    assert len(caught.value.faults) >= 1
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "token", "words"),
    [
        ("hf://org/typo", "", "ModelNotFound: "),
        ("hf://org/model@v9", "", "RevisionNotFound: org/model has no revision v9."),
        ("hf://org/model", "secret", "ModelAccessDenied: Access without a token is refused to org/model"),
    ],
)
def test_a_model_that_cannot_be_fetched_ends_it_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, token: str, words: str
) -> None:
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with HubServer({"config.json": b"{}", "model.safetensors": b""}) as hub:
        hub.token = token
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
        result = run_up(written(tmp_path, YAML.format(uri=uri)), "--port", "0")
    assert result.returncode == 2
    assert words in result.stderr


def test_the_progress_of_a_download_stands_where_a_decision_would() -> None:
    decided = {"kind": "replicas", "message": "0 → 1 replica: minReplicas is 1."}
    fetching = {
        "type": "Ready",
        "status": "False",
        "reason": "Fetching",
        "message": "No pod is ready: 42 % of 16.1 GB.",
    }
    starting = fetching | {"reason": "Starting"}
    pod = PodLine("chat-0", "starting")
    assert why({"conditions": [fetching], "decisions": [decided]}, (pod,)) == "No replica is ready: 42 % of 16.1 GB."
    assert why({"conditions": [starting], "decisions": [decided]}, (pod,)) == "0 → 1 replica: minReplicas is 1."
    failed = PodLine("chat-0", "failed", trouble="DiskFull: no room")
    assert why({"conditions": [fetching], "decisions": [decided]}, (failed,)) == "DiskFull: no room"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = run_up(tmp_path / "none.yaml")
    assert result.returncode == 2
    assert "none.yaml" in result.stderr


def test_documents_of_other_kinds_stand_beside_it(tmp_path: Path, model: Path) -> None:
    file = written(tmp_path, "kind: Namespace\n---\n" + YAML.format(uri=model.as_uri()))
    assert read_local_resource(file).key.name == "chat"


def test_a_taken_port_is_named_with_the_option_that_changes_it(good: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run_up(good, "--port", str(port))
    assert result.returncode == 2
    assert str(port) in result.stderr
    assert "--port" in result.stderr


def gone(pids: set[int], seconds: float = 20.0) -> bool:
    """Whether these processes end in time."""
    end = time.monotonic() + seconds
    while any(map(_lives, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)  # type: ignore[no-untyped-call]
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_ended_while_loading_it_leaves_no_process(good: Path, number: signal.Signals) -> None:
    async with sluice_up(good) as up:
        while not up.pids():
            await up.until()
        started = descendants(up.process.pid) | up.pids()
        up.process.send_signal(number)
        await up.process.wait()
        assert up.process.returncode == (-9 if number is signal.SIGKILL else 0)
        assert await asyncio.to_thread(gone, started)


async def test_a_stream_is_answered_to_its_end_while_ctrl_c_drains(good: Path) -> None:
    async with sluice_up(good) as up:
        url = (await up.until(event="started"))["url"]
        await up.until(ready=1)
        started = descendants(up.process.pid)
        assert len(started) >= 2  # the engine's HTTP process and its engine process
        body = {"model": "chat", "messages": [{"role": "user", "content": "What is a token?"}], "stream": True}
        async with aiohttp.ClientSession() as client, client.post(f"{url}/v1/chat/completions", json=body) as response:
            assert response.status == 200
            first = await response.content.readany()
            up.process.send_signal(signal.SIGINT)
            text = (first + await response.content.read()).decode()
        assert text.rstrip().endswith("data: [DONE]")
        await up.until(event="stopped")
        assert await up.process.wait() == 0
        assert gone(started, 0.1)


def snapshot(**changes: Any) -> Snapshot:
    pod = PodLine("chat-1", "ready", limit=12, queue=40, running=3, waiting=0, kv_percent=1.5)
    fields: dict[str, Any] = {
        "name": "chat",
        "replicas": 1,
        "ready": 1,
        "desired": 2,
        "kv_percent": 1.5,
        "ttft_ms": 120.0,
        "itl_ms": None,
        "limit": 12,
        "queue": 40,
        "running": 3,
        "waiting": 0,
        "url": "http://127.0.0.1:8080",
        "why": "ITL binds.",
        "pods": (pod,),
    }
    return Snapshot(**fields | changes)


def test_a_line_is_written_on_each_notable_change_and_at_an_interval() -> None:
    lines: list[str] = []
    now: Iterator[float] = iter([0.0, 1.0, 2.0, 3.5, 4.0])
    show = LogLines(lines.append, JsonLines(), clock=lambda: next(now))
    for change in ({}, {"running": 4}, {"limit": 9}, {"limit": 9}, {"limit": 9, "running": 5}):
        show.snapshot(snapshot(**change))
    assert [json.loads(line)["limit"] for line in lines] == [12, 9]
    keys = set(json.loads(lines[0]))
    assert keys >= {"time", "name", "replicas", "ready", "desired", "kv_percent", "ttft_ms", "itl_ms", "limit", "queue"}
    assert keys >= {"waiting", "running", "url", "why", "pods"}


def test_a_loop_without_changes_writes_a_line_at_an_interval() -> None:
    lines: list[str] = []
    now: Iterator[float] = iter([0.0, 1.0, 3.0])
    show = LogLines(lines.append, JsonLines(), clock=lambda: next(now))
    for _ in range(3):
        show.snapshot(snapshot())
    assert len(lines) == 2


def test_a_closed_output_pipe_ends_the_loop_in_order() -> None:
    def broken(_: str) -> None:
        raise BrokenPipeError

    show = LogLines(broken, JsonLines())
    assert not show.gone
    show.event("started", {})
    assert show.gone


def test_the_table_shows_the_model_its_replicas_and_why() -> None:
    screen = io.StringIO()
    table = LiveTable(Console(file=screen, force_terminal=True, width=160))
    table.snapshot(snapshot())
    table.event("decision", {"message": "1 → 2 replicas: ITL binds."})
    table.close()
    text = screen.getvalue()
    for words in ("chat", "1/2", "120 ms", "12", "40", "ITL binds.", "replica 1", "1 → 2 replicas"):
        assert words in text


def test_the_same_state_as_text_is_one_line_with_counts_and_why() -> None:
    lines: list[str] = []
    LogLines(lines.append, TextLines()).snapshot(snapshot())
    assert [line[13:] for line in lines] == ["INFO    up       chat: 1/2 ready, 3 running, 0 waiting: ITL binds."]


def test_a_fault_that_no_restart_solves_ends_it_with_status_2(tmp_path: Path, model: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((model / "config.json").read_bytes())  # a model without weights
    result = run_up(written(tmp_path, YAML.format(uri=bare.as_uri())), "--port", "0")
    assert result.returncode == 2
    assert "ModelInvalid" in result.stderr and "spec.model.uri" in result.stderr
    events = [line.get("event") for line in map(json.loads, result.stdout.splitlines())]
    assert events[-2:] == ["stopping", "stopped"]


@pytest.mark.parametrize(
    ("pods", "ends"),
    [
        ([("failed", "AcceleratorNotFound")], True),
        ([("failed", "AcceleratorNotFound"), ("failed", "EngineCrashed")], True),
        ([("failed", "EngineCrashed")], False),
        ([("failed", "PortTaken")], False),
        ([("failed", "InsufficientMemory"), ("loading", None)], False),
        ([("ready", None)], False),
        ([], False),
    ],
)
def test_a_fault_is_permanent_if_no_replica_may_outlive_it(pods: list[tuple[str, str | None]], ends: bool) -> None:
    lines = tuple(PodLine(f"chat-{i}", phase, reason=reason, trouble=reason) for i, (phase, reason) in enumerate(pods))
    assert (permanent_fault(snapshot(pods=lines)) is not None) == ends
