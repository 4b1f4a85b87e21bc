"""A model that cannot fit is refused before its weights are downloaded, by the real client libraries."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice_engine.backend import resources
from sluice_engine.config import EngineOptions
from sluice_engine.sources import MemoryPlan, Patience, SourceError, cached_models, fetch, memory, memory_plan
from tests.hub_server import Hub
from tests.s3_server import s3_store

ONCE = Patience(stall_seconds=5.0, lease_seconds=5.0, attempts=1)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
PARAMETERS = 4 << 20
MIB = 1 << 20


def plan(free: int, **changes: Any) -> MemoryPlan:
    values: dict[str, Any] = {
        "free": free,
        "generates": True,
        "dtype": "auto",
        "max_model_length": None,
        "kv_size": None,
        "kv_share": 1.0,
        "block_size": 16,
        "swap_size": 0,
    }
    return MemoryPlan(**(values | changes))


def files() -> dict[str, bytes]:
    tensors = {"w": {"dtype": "BF16", "shape": [PARAMETERS], "data_offsets": [0, 2 * PARAMETERS]}}
    header = json.dumps(tensors).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(2 * PARAMETERS)
    return {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": b"{}", "model.safetensors": weights}


def test_a_model_of_a_hub_is_refused_before_its_weights(hub: Hub, tmp_path: Path) -> None:
    hub.files = files()
    with pytest.raises(SourceError) as caught:
        fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(8 * MIB))
    assert (caught.value.reason, caught.value.transient) == ("InsufficientMemory", False)
    assert caught.value.message == (
        "The model needs at least 24 MiB: 8 MiB of weights in bfloat16 and 16 MiB for the KV cache of one request of 4096 "
        "tokens. The free memory is 8 MiB. Give the engine at least 0.1 GiB (on a cluster, the container's memory limit), "
        "or choose a smaller model."
    )
    assert hub.served < 4 * MIB and cached_models(tmp_path) == ()
    assert fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(32 * MIB)).folder.is_dir()


def test_a_shorter_request_would_fit(hub: Hub, tmp_path: Path) -> None:
    hub.files = files()
    with pytest.raises(SourceError, match="--max-model-length 1024 would fit"):
        fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(12 * MIB))
    fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(12 * MIB, max_model_length=1024))


def test_a_cache_of_a_size_that_holds_no_request_is_refused_before_the_weights(hub: Hub, tmp_path: Path) -> None:
    hub.files = files()
    with pytest.raises(
        SourceError, match=r"needs 16 MiB, and --kv-size gives 5 B\. Raise it to --kv-size 16Mi"
    ) as caught:
        fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(64 * MIB, kv_size=5))
    assert caught.value.reason == "InsufficientMemory" and hub.served < 4 * MIB
    assert fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(64 * MIB, kv_size=16 * MIB)).folder.is_dir()


@pytest.mark.parametrize("weights", [b"", b"short", (1 << 60).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"[]"])
def test_weights_whose_header_cannot_be_read_are_downloaded(hub: Hub, tmp_path: Path, weights: bytes) -> None:
    hub.files = {**files(), "model.safetensors": weights}
    assert fetch("hf://org/model", tmp_path, patience=ONCE, memory=plan(1)).folder.is_dir()


@dataclass
class _Store:
    uri: str


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Store]:
    with s3_store() as store:
        store.put("models")
        for name, content in files().items():
            store.put(f"models/llama/{name}", content)
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield _Store("s3://models/llama")


def test_a_model_of_a_bucket_is_refused_before_its_weights(bucket: _Store, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        fetch(bucket.uri, tmp_path, patience=ONCE, memory=plan(8 * MIB))
    assert caught.value.reason == "InsufficientMemory"
    assert fetch(bucket.uri, tmp_path, patience=ONCE, memory=plan(32 * MIB)).folder.is_dir()


def test_only_memory_that_this_process_reads_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "memory_left", lambda: 5)
    options = EngineOptions(model="m", served_name="m", device="cpu", task="embed")
    found = memory_plan(options)
    assert found is not None and (found.free, found.generates) == (5, False)
    monkeypatch.setattr(resources, "GPU_DEVICES", (tmp_path,))
    assert memory_plan(EngineOptions(model="m", served_name="m")) is None
    assert memory_plan(EngineOptions(model="m", served_name="m", device="cuda")) is None
