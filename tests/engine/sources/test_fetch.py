"""A download by the real client library from a small hub: what is fetched, cached, resumed and shared."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice_engine.sources import Patience, Progress, cached_models, fetch, remove
from sluice_engine.sources.cache import MARKER
from sluice_engine.sources.messages import Task
from tests.engine.sources.conftest import FILES
from tests.hub_server import COMMIT, Hub

URI = "hf://org/model"
PATIENCE = Patience(stall_seconds=30.0, lease_seconds=0.4, attempts=2)
WEIGHTS = FILES["model.safetensors"]


def is_whole(folder: Path) -> bool:
    return all((folder / name).read_bytes() == FILES[name] for name in ("config.json", "model.safetensors"))


def spawn(cache: Path, lease_seconds: float) -> subprocess.Popen[bytes]:
    task = msgspec.json.encode(Task(URI, str(cache), 30.0, lease_seconds)).decode()
    command = [sys.executable, "-m", "sluice_engine.sources.worker", task]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def received(worker: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The messages of a download's process."""
    assert worker.stdout is not None
    return map(json.loads, worker.stdout)


def test_only_what_the_engine_loads_is_fetched_and_only_once(hub: Hub, tmp_path: Path) -> None:
    seen: list[Progress] = []
    fetched = fetch(f"{URI}@main", tmp_path, seen.append, patience=PATIENCE)
    assert fetched.revision == COMMIT and is_whole(fetched.folder)
    assert {path.name for path in fetched.folder.iterdir()} == {
        "config.json", "tokenizer.json", "model.safetensors", MARKER,
    }  # fmt: skip
    assert seen
    served = hub.served
    (model,) = cached_models(tmp_path)
    assert (model.revision, model.folder) == (COMMIT, fetched.folder)
    assert fetch(URI, tmp_path, patience=PATIENCE) == fetched and hub.served == served
    requests = len(hub.requests)
    assert fetch(f"{URI}@{COMMIT}", tmp_path, patience=PATIENCE) == fetched
    assert len(hub.requests) == requests, "a commit never changes, so a cached one needs no network"
    remove(model)
    assert cached_models(tmp_path) == () and not fetched.folder.exists()


def test_a_download_killed_at_ten_points_continues_and_is_never_half_loaded(hub: Hub, tmp_path: Path) -> None:
    points = sorted(random.Random(7).sample(range(len(WEIGHTS)), 10))
    for point in points:
        hub.stop_at, hub.reached, hub.released = point, threading.Event(), threading.Event()
        with spawn(tmp_path, 0.4) as worker:
            try:
                assert hub.reached.wait(30)
            finally:
                worker.kill()
        hub.released.set()
        assert cached_models(tmp_path) == ()
    hub.stop_at = None
    fetched = fetch(URI, tmp_path, patience=PATIENCE)
    assert is_whole(fetched.folder) and len(cached_models(tmp_path)) == 1
    assert begins(hub) == sorted(begins(hub)) and begins(hub)[-1] > len(WEIGHTS) // 2
    # A kill loses what the client's socket had buffered, hence the margin.
    assert hub.served < 3 * len(WEIGHTS), "ten downloads from the start would take five times the model"


def begins(hub: Hub) -> list[int]:
    """Where each request for the weights began; at first 0."""
    asked = [request for request in hub.requests if "model.safetensors" in request]
    return [0, *(int(request.partition("bytes=")[2].rstrip("-") or 0) for request in asked)]


def test_two_processes_download_once(hub: Hub, tmp_path: Path) -> None:
    hub.stop_at = len(WEIGHTS) // 2
    with spawn(tmp_path, 10.0) as first:
        assert hub.reached.wait(30)
        with spawn(tmp_path, 10.0) as second:
            states = received(second)
            half = next(state for state in states if state["received"] > len(WEIGHTS) // 4)
            assert half["total"] > len(WEIGHTS)
            hub.stop_at = None
            hub.released.set()  # the first connection ends here, and the client continues by a second one
            for messages in (received(first), states):
                result = next(message for message in messages if message["type"] != "state")
                assert is_whole(Path(result["folder"]))
    assert hub.served < 1.5 * len(WEIGHTS)


def test_a_damaged_file_of_the_cache_is_fetched_again_and_only_that_one(hub: Hub, tmp_path: Path) -> None:
    folder = fetch(URI, tmp_path, patience=PATIENCE).folder
    (folder / "tokenizer.json").write_bytes(b"{ ")
    (folder / "config.json").touch()
    before = len(hub.requests)
    assert fetch(URI, tmp_path, patience=PATIENCE).folder == folder
    assert (folder / "tokenizer.json").read_bytes() == b"{}"
    again = [request.rpartition("/")[2] for request in hub.requests[before:] if "resolve" in request]
    assert again == ["tokenizer.json"]


def test_without_a_network_the_cached_revision_of_the_branch_is_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = fetch(URI, tmp_path, patience=PATIENCE)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch(URI, tmp_path, patience=PATIENCE) == fetched


def test_a_complete_model_is_served_from_a_cache_that_cannot_be_written(hub: Hub, tmp_path: Path) -> None:
    fetched = fetch(URI, tmp_path, patience=PATIENCE)
    note = fetched.folder.parent / "default.ref"
    note.unlink()
    (note / "in the way").mkdir(parents=True)  # root may write to a folder without permissions, and replace no folder
    assert fetch(URI, tmp_path, patience=PATIENCE) == fetched
