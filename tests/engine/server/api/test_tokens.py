"""/tokenize, /detokenize, /health and /version: the model's own tokenizer, and no key for what a load balancer asks."""

from typing import Any

import pytest
from tokenizers import Tokenizer

from sluice import contract
from sluice_engine.server.api import data_routes
from tests.engine.serving import Served

FORBIDDEN_TOOL = {"type": "function", "function": {"name": "a b*"}}


def test_a_prompt_is_what_the_models_tokenizer_makes_of_it(served: Served, tiny_model: Any) -> None:
    text = "The KV cache of größe 5 <|im_end|>"
    own = Tokenizer.from_file(str(tiny_model / "tokenizer.json")).encode(text)
    given = served.request("POST", "/tokenize", {"model": "tiny", "prompt": text, "return_token_strs": True}).json()
    assert (given["tokens"], given["token_strs"], given["count"]) == (own.ids, own.tokens, len(own.ids))
    assert given["max_model_len"] > 0
    back = served.request("POST", "/detokenize", {"tokens": given["tokens"]}).json()
    assert back == {"prompt": text}


def test_a_chat_has_as_many_tokens_as_its_usage_says(served: Served) -> None:
    messages = [{"role": "user", "content": "What is a KV cache?"}]
    counted = served.request("POST", "/tokenize", {"messages": messages}).json()["count"]
    chat = {"model": "tiny", "messages": messages, "max_tokens": 1}
    assert served.request("POST", contract.PATH_CHAT_COMPLETIONS, chat).json()["usage"]["prompt_tokens"] == counted


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "messages"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"messages": [{"role": "user", "content": "b"}], "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "tools": [FORBIDDEN_TOOL]}, "tools[0].function.name"),
        ("/tokenize", {"prompt": "a", "chat_template_kwargs": 5}, "chat_template_kwargs"),
        ("/tokenize", {"prompt": "a", "extra": 1}, "extra"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, "tokens"),
    ],
)
def test_a_bad_field_is_named(served: Served, path: str, body: Any, param: str) -> None:
    given = served.request("POST", path, body)
    assert (given.status, given.error["param"]) == (400, param)


def test_health_and_version_need_no_key(served_with_keys: Served) -> None:
    served_with_keys.key, key = None, served_with_keys.key
    try:
        assert served_with_keys.request("GET", "/health").status == 200
        assert set(served_with_keys.request("GET", "/version").json()) == {"version"}
        assert served_with_keys.request("GET", "/v1/models").status == 401
        assert served_with_keys.request("POST", "/tokenize", {"prompt": "a"}).status == 401
        assert served_with_keys.request("POST", "/health", {}).status == 405
    finally:
        served_with_keys.key = key


def test_the_front_door_passes_on_every_path_of_the_data_port() -> None:
    own = {path for path in data_routes.routes() if "*" not in path}
    assert own == {*contract.POSTED_PATHS, contract.PATH_MODELS}
