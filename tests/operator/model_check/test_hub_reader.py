"""The operator reads a model of a real hub server, and no weights."""

import asyncio
import json

import pytest

from sluice.models.uri import HubModel, parse_uri
from sluice_operator.model_check import HubReader, ModelRecord, NotChecked
from sluice_perfmodel.model_memory import Plan
from tests.hub_server import COMMIT, Hub
from tests.operator.model_check.conftest import CONFIG, PARAMETERS, header

MODEL = HubModel("org/model")
HUGE = b'{"w": {"shape": [9, 999999999999999999], "data_offsets": [0, 18]}}'


async def _reason(reader: HubReader, uri: str = "hf://org/model") -> str:
    with pytest.raises(NotChecked) as caught:
        await reader.read(parse_uri(uri))
    return str(caught.value)


@pytest.mark.parametrize("uri", ["hf://org/model", "hf://org/model@main", f"hf://org/model@{COMMIT}"])
async def test_the_facts_of_a_model_are_read_without_its_weights(hub: Hub, uri: str) -> None:
    record = await HubReader(hub.url).read(parse_uri(uri))
    assert record.fault is None
    assert (record.facts.parameters, record.facts.dtype, record.facts.positions) == (PARAMETERS, "bfloat16", 40960)
    assert record.facts.kv is not None and record.facts.kv.request_bytes(1024, Plan("bfloat16")) == 1024 * 144 * 1024
    assert len(hub.requests) == 4


async def test_the_dtype_of_the_weights_is_that_of_their_header(hub: Hub) -> None:
    hub.files["config.json"] = json.dumps(CONFIG | {"torch_dtype": "float32"}).encode()
    assert (await HubReader(hub.url).read(MODEL)).facts.parameters == PARAMETERS


async def test_shards_are_added_up(hub: Hub) -> None:
    hub.files.pop("model.safetensors")
    for number in (1, 2, 3):
        hub.files[f"model-0000{number}-of-00003.safetensors"] = header(1000) + bytes(2000)
    hub.files["consolidated.safetensors"] = header(3000) + bytes(6000)
    assert (await HubReader(hub.url).read(MODEL)).facts.parameters == 3000


async def test_an_adapter_and_an_architecture_are_named(hub: Hub) -> None:
    hub.files["config.json"] = json.dumps(
        CONFIG | {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}
    ).encode()
    record = await HubReader(hub.url).read(MODEL)
    assert record.fault is not None and "MambaForCausalLM, which keeps a recurrent state" in record.fault
    hub.files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}
    record = await HubReader(hub.url).read(MODEL)
    assert record.fault is not None and "LoRA adapter" in record.fault


async def test_a_failed_read_names_its_reason(hub: Hub) -> None:
    reader = HubReader(hub.url)
    assert "GGUF" in await _reason(reader, "hf://org/model/a.gguf")
    assert "answered 404" in await _reason(reader, "hf://org/other")
    assert "answered 404" in await _reason(reader, "hf://org/model@v9")
    for uri, words in (("s3://models/x", "bucket"), ("pvc://c/x", "claim"), ("file:///m", "path")):
        assert f"only the pods can read the {words}" in (await _reason(reader, uri)).replace(
            "have access to", "can read"
        )
    hub.token = "secret"
    assert "refuses access without a token" in await _reason(reader)
    hub.token, hub.refusal = "", (503, {})
    assert await _reason(reader) == f"{hub.url} answered 503"
    assert "read no hub" in await _reason(HubReader(""))
    assert "cannot be reached" in await _reason(HubReader("http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"short"),
        ("model.safetensors", (1 << 60).to_bytes(8, "little") + b"{}"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"[]"),
        ("model.safetensors", (40).to_bytes(8, "little") + b'{"w": {"shape": ["x"], "data_offsets": 1}}'),
        (
            "model.safetensors",
            len(HUGE).to_bytes(8, "little") + HUGE,
        ),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b" " * (5 << 20)),
    ],
)
async def test_damaged_files_are_not_checked(hub: Hub, name: str, content: bytes) -> None:
    hub.files[name] = content
    assert await _reason(HubReader(hub.url))


async def test_many_reads_at_once_end(hub: Hub) -> None:
    reader = HubReader(hub.url)
    found = await asyncio.gather(*(reader.read(MODEL) for _ in range(20)))
    assert all(isinstance(each, ModelRecord) for each in found)
