"""The tables of bad bodies, each row as a request to a server without API keys and to one with them.

The rows are those that the validator and the grammar compiler are tested with; here they come over HTTP, so that no row
is answered before or after the key differently.
"""

import http.client
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.engine.server.api.generation.test_structured_output import BAD as BAD_GRAMMARS
from tests.engine.server.api.generation.test_tools import BAD as BAD_TOOLS
from tests.engine.server.api.generation.test_validate import BAD_MESSAGES, BAD_PROMPTS, NO_OBJECTS, OUT_OF_RANGE
from tests.engine.server.transport.conftest import GOOD
from tests.engine.serving import CHAT, JSON, Served

COMPLETIONS = "/v1/completions"
ASKED = {name: GOOD[name] for name in ("model", "messages")}
LONG = "x" * 10_000
pytestmark = pytest.mark.usefixtures("unharmed")

Row = tuple[bytes, int, str | None]  # body, status, param


def faults(served: Served, path: str, rows: Sequence[Row]) -> list[str]:
    """The rows whose answer is another one, all asked over one connection where the server keeps it open."""
    key = {} if served.key is None else {"Authorization": f"Bearer {served.key}"}
    found = []
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)) as connection:
        for body, status, param in rows:
            connection.request("POST", path, body, JSON | key)
            answer = connection.getresponse()
            error = json.loads(answer.read())["error"]
            if set(error) != {"message", "type", "param", "code"} or (answer.status, error["param"]) != (status, param):
                found.append(f"{body[:80]!r}: {answer.status} {error}")
    return found


def row(fields: dict[str, Any], param: str, status: int = 400) -> Row:
    return json.dumps(ASKED | fields).encode(), status, param


def test_bodies_that_are_no_object(served: Served) -> None:
    assert faults(served, CHAT, [(body, 400, None) for body in NO_OBJECTS]) == []


def test_fields_out_of_range(served: Served) -> None:
    assert faults(served, CHAT, [row({field: value}, field) for field, value in OUT_OF_RANGE]) == []


def test_messages(served: Served) -> None:
    assert faults(served, CHAT, [row({"messages": messages}, param) for messages, param in BAD_MESSAGES]) == []


def test_tools(served: Served) -> None:
    assert faults(served, CHAT, [row(fields, param) for fields, param in BAD_TOOLS]) == []


def test_grammars(served: Served) -> None:
    assert faults(served, CHAT, [row(fields, param) for fields, param in BAD_GRAMMARS]) == []


def test_models_that_are_not_served(served: Served) -> None:
    names = ("other", "../../etc", LONG)
    assert faults(served, CHAT, [row({"model": name}, "model", 404) for name in names]) == []
    assert LONG not in served.log.read_text()


def test_prompts_and_token_ids_at_the_logits_width(served: Served) -> None:
    tokens = served.request("POST", "/tokenize", {"prompt": "a"}).json()
    beyond = [[10**6], [2**31], [*tokens["tokens"], 2**63]]
    rows = [
        (json.dumps({"model": "tiny", "prompt": prompt}).encode(), 400, "prompt") for prompt in [*BAD_PROMPTS, *beyond]
    ]
    assert faults(served, COMPLETIONS, rows) == []


def test_a_prompt_beyond_the_context_names_both_numbers(served: Served) -> None:
    answer = served.request("POST", CHAT, {**GOOD, "messages": [{"role": "user", "content": "word " * 5000}]})
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    longest = served.request("GET", "/v1/models").json()["data"][0]["max_model_len"]
    assert str(longest) in answer.error["message"]


def test_control_tokens_in_a_message_are_text(served: Served) -> None:
    def prompt_tokens(content: str) -> int:
        asked = {**GOOD, "messages": [{"role": "user", "content": content}]}
        return int(served.request("POST", CHAT, asked).json()["usage"]["prompt_tokens"])

    assert prompt_tokens("<|im_end|>") >= prompt_tokens("a") + 3
