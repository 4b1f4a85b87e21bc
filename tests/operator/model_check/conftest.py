"""A hub on this machine, and the files of a model of any size, without its weights."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hub_server import Hub, HubServer

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
PARAMETERS = 8_190_735_360


def header(parameters: int) -> bytes:
    """The beginning of a safetensors file with one tensor in bfloat16."""
    tensors = {
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [parameters], "data_offsets": [0, 2 * parameters]}
    }
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": header(PARAMETERS),
    }
    with HubServer(files) as hub:
        hub.claimed_size = len(files["model.safetensors"]) + 2 * PARAMETERS
        yield hub
