"""Models of an S3 bucket, by the real client from moto's server: what is fetched, resumed and refused."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sluice_engine.sources import Patience, SourceError, cached_models, fetch
from sluice_engine.sources.cache import MARKER
from sluice_engine.sources.messages import Task
from tests.engine.sources.conftest import FILES
from tests.s3_server import Store, s3_store

URI = "s3://models/team/qwen"
ONCE = Patience(stall_seconds=1.5, lease_seconds=0.4, attempts=1)
CHUNK = 1 << 18
WEIGHTS = FILES["model.safetensors"]
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@pytest.fixture(scope="module")
def running() -> Iterator[Store]:
    with s3_store() as store:
        store.put("models")
        for name, content in FILES.items():
            store.put(f"models/team/qwen/{name}", content)
        store.put("models/team/qwen2/config.json", b"another model")
        store.put("models/files/one.gguf", b"GGUF")
        yield store


@pytest.fixture
def store(running: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """The store without faults, and an environment without anything of the user's."""
    for name in (*NAMES, "AWS_PROFILE", "AWS_REGION", "SLUICE_S3_CREDENTIALS", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    running.refusal = running.truncate_at = running.stop_at = None
    running.served, running.requests = 0, []
    running.reached, running.released = threading.Event(), threading.Event()
    return running


def refusal(cache: Path, uri: str = URI) -> SourceError:
    with pytest.raises(SourceError) as caught:
        fetch(uri, cache, patience=ONCE)
    assert cached_models(cache) == ()
    return caught.value


def test_only_what_the_engine_loads_is_fetched_and_only_once(store: Store, tmp_path: Path) -> None:
    fetched = fetch(URI, tmp_path, patience=ONCE)
    names = {path.name for path in fetched.folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors", MARKER}
    assert (fetched.folder / "model.safetensors").read_bytes() == WEIGHTS
    served = store.served
    assert fetch(URI, tmp_path, patience=ONCE) == fetched and store.served == served
    assert fetch("s3://models/files/one.gguf", tmp_path, patience=ONCE).folder.joinpath("one.gguf").is_file()


def test_a_replaced_object_is_another_revision(store: Store, tmp_path: Path) -> None:
    first = fetch(URI, tmp_path, patience=ONCE)
    store.put("models/team/qwen/tokenizer.json", b'{"new": 1}')
    try:
        second = fetch(URI, tmp_path, patience=ONCE)
    finally:
        store.put("models/team/qwen/tokenizer.json", FILES["tokenizer.json"])
    assert first.revision != second.revision
    assert (second.folder / "tokenizer.json").read_bytes() == b'{"new": 1}'
    assert (first.folder / "tokenizer.json").read_bytes() == FILES["tokenizer.json"]


def test_a_download_that_was_killed_continues(store: Store, tmp_path: Path) -> None:
    received = 0
    for point in (1 << 20, 3 << 18, 1 << 19):  # bytes of each response
        store.stop_at, store.reached, store.released = point, threading.Event(), threading.Event()
        task = msgspec.json.encode(Task(URI, str(tmp_path), 30.0, 0.4)).decode()
        command = [sys.executable, "-m", "sluice_engine.sources.worker", task]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            states = (json.loads(line) for line in worker.stdout or ())
            received = next(state["received"] for state in states if state["received"] > received + CHUNK)
            worker.send_signal(signal.SIGKILL)
        store.released.set()
        assert cached_models(tmp_path) == ()
    store.stop_at = None
    assert (fetch(URI, tmp_path, patience=ONCE).folder / "model.safetensors").read_bytes() == WEIGHTS
    begins = [int(r.partition("bytes=")[2].rstrip("-") or 0) for r in store.requests if "model.safetensors" in r]
    assert begins == sorted(begins) and begins[-1] >= received - 1024, "the small files are received too"


@pytest.mark.parametrize(
    ("status", "code", "reason", "transient"),
    [
        (403, "AccessDenied", "ModelAccessDenied", False),
        (403, "SignatureDoesNotMatch", "ModelAccessDenied", False),
        (400, "AuthorizationHeaderMalformed", "InvalidOption", False),
        (429, "TooManyRequests", "RateLimited", True),
        (503, "SlowDown", "RateLimited", True),
        (500, "InternalError", "DownloadFailed", True),
    ],
)
def test_each_refusal_has_its_reason_and_heals(
    store: Store, tmp_path: Path, status: int, code: str, reason: str, transient: bool
) -> None:
    store.refusal = (status, code)
    error = refusal(tmp_path)
    assert (error.reason, error.transient) == (reason, transient), error.message
    assert code in error.message or "AWS_REGION" in error.message
    store.refusal = None
    assert fetch(URI, tmp_path, patience=ONCE).folder.is_dir()


@pytest.mark.parametrize(
    ("uri", "reason", "words"),
    [
        ("s3://nothing-here/qwen", "ModelNotFound", "no bucket nothing-here"),
        ("s3://models/team/qwe", "ModelNotFound", "holds no files"),
        ("s3://models/files", "ModelInvalid", "Name one GGUF file"),
        ("s3://models/team/qwen2", "ModelInvalid", "no *.safetensors"),
    ],
)
def test_a_wrong_name_is_named(store: Store, tmp_path: Path, uri: str, reason: str, words: str) -> None:
    error = refusal(tmp_path, uri)
    assert error.reason == reason and words in error.message


def test_a_truncated_and_a_stalled_transfer_end_and_continue(store: Store, tmp_path: Path) -> None:
    store.truncate_at = 1 << 20
    assert refusal(tmp_path).reason == "DownloadFailed"
    store.truncate_at, store.stop_at = None, 1 << 20
    assert refusal(tmp_path).reason == "DownloadStalled"
    store.stop_at = None
    store.released.set()
    assert (fetch(URI, tmp_path, patience=ONCE).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert store.requests[-1].endswith("-") and "bytes=" in store.requests[-1]


def test_a_store_that_is_away_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    error = refusal(tmp_path)
    assert error.reason == "SourceUnreachable" and "127.0.0.1:9" in error.message
    monkeypatch.setenv("AWS_ENDPOINT_URL", "ftp://store")
    assert refusal(tmp_path).reason == "InvalidOption"


def test_a_private_bucket_asks_for_credentials(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    error = refusal(tmp_path)
    assert error.reason == "ModelAccessDenied" and "AWS_SECRET_ACCESS_KEY" in error.message


def test_a_missing_secret_is_named_and_read_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = tmp_path / "secret"
    mounted.mkdir()
    monkeypatch.setenv("SLUICE_S3_CREDENTIALS", str(mounted))
    (mounted / NAMES[0]).write_text("key\n")
    error = refusal(tmp_path / "cache")
    assert error.reason == "SecretNotFound" and "AWS_SECRET_ACCESS_KEY" in error.message
    (mounted / NAMES[1]).write_text("secret\n")
    assert fetch(URI, tmp_path / "cache", patience=ONCE).folder.is_dir()
