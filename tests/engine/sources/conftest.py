"""A hub on this machine, and an environment in which the client library uses it and nothing of the user's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import Hub, HubServer

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 4096 * 6,
    "pytorch_model.bin": b"pickled",
    "original/model.safetensors": b"another format",
    "README.md": b"words",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with HubServer(dict(FILES)) as hub:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
