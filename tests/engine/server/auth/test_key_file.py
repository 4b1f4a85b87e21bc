"""The key file: what it means, and one sentence per fault that names the entry and quotes no secret."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sluice.auth.key_file import KeyFileInvalid, parse
from sluice.auth.key_store import KeyStore
from sluice.cli import app
from sluice_engine.server.errors import Unauthorized
from tests.engine.server.auth.keys import bearer, entry, key_file

SECRET = "sk-this-is-a-key-and-no-digest"


def test_an_entry_has_limits_only_where_the_file_gives_them() -> None:
    (free,) = parse(key_file(entry("free")))
    assert (free.models, free.max_priority, free.weight) == (None, 100, 1.0)
    assert (free.requests_per_minute, free.tokens_per_minute) == (None, None)
    (bound,) = parse(
        b"- name: bound\n  sha256: " + b"aB" * 32 + b"\n  models: [chat, code]\n  priority: {max: -5}\n"
        b"  weight: 2\n  requestsPerMinute: 60\n  tokensPerMinute: 9000\n"
    )
    assert bound.digest == bytes.fromhex("ab" * 32)
    assert (bound.models, bound.max_priority, bound.weight) == (frozenset({"chat", "code"}), -5, 2.0)
    assert (bound.requests_per_minute, bound.tokens_per_minute) == (60, 9000)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it must be a YAML list"),
        (b"keys: []", "it must be a YAML list"),
        (b"- a\n- [", "it is not YAML (line 3)"),
        (b"\xff", "it is not YAML"),
        (key_file(entry("a"), {"name": "b"}), "entry 2 ('b'): it has no sha256"),
        (key_file({"name": "a", "key": SECRET}), "entry 1 ('a'): 'key' is not a field"),
        (key_file({"name": "a", "sha256": SECRET}), "entry 1 ('a'), sha256: it must be the 64 hex digits"),
        (key_file({"name": "a", "sha256": "é" * 64}), "entry 1 ('a'), sha256: it must be the 64 hex digits"),
        (key_file(entry("a b")), "entry 1 ('a b'), name: it must be 1 to 128 letters"),
        (key_file(entry("a\n")), "entry 1 ('a\\n'), name: it must be 1 to 128 letters"),
        (key_file(entry("a", weight=0)), "entry 1 ('a'), weight: expected a number >= 0.001"),
        (key_file(entry("a", weight="2")), "entry 1 ('a'), weight: expected a number, got text"),
        (key_file(entry("a", priority={"max": 101})), "entry 1 ('a'), priority.max: expected a whole number <= 100"),
        (key_file(entry("a", requestsPerMinute=0)), "requestsPerMinute: expected a whole number >= 1"),
        (key_file(entry("a", tokensPerMinute=1.5)), "tokensPerMinute: expected a whole number, got a number"),
        (key_file(entry("a", models="chat")), "entry 1 ('a'), models: expected a list, got text"),
        (key_file(entry("a"), entry("b", key="key-of-a")), "entries 1 and 2 have the same sha256"),
        (key_file(entry("a"), entry("a", key="new", weight=2)), "entries 1 and 2 are both named 'a' and differ"),
        (b" " * (4 * 1024 * 1024 + 1), "it has more than 4194304 bytes"),
    ],
)  # fmt: skip
def test_a_fault_is_a_sentence_that_names_its_entry(content: bytes, sentence: str) -> None:
    with pytest.raises(KeyFileInvalid) as caught:
        parse(content)
    assert sentence in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None  # a traceback in the log would quote the content


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["name", "sha256", "models", "priority", "weight", "requestsPerMinute", "tokensPerMinute"])


@given(st.lists(st.dictionaries(fields, json_values, max_size=4).map(lambda wrong: entry("a") | wrong), max_size=3))
def test_any_yaml_is_keys_or_one_fault(entries: list[dict[str, Any]]) -> None:
    try:
        assert len(parse(key_file(*entries))) == len(entries)
    except KeyFileInvalid as error:
        assert str(error)


def test_two_keys_of_one_name_are_one_tenant_so_that_a_key_can_be_replaced() -> None:
    store = KeyStore(parse(key_file(entry("a", weight=3), entry("a", key="new", weight=3))))
    old, new = store.find([bearer("a")]), store.find(["Bearer new"])
    assert old is not None and new is not None
    assert old.name == new.name == "a"
    assert store.weights == {"a": 3.0}


@pytest.mark.parametrize("header", ["Bearer key-of-a", "bearer   key-of-a ", "BEARER key-of-a"])
def test_the_scheme_is_case_insensitive(header: str) -> None:
    assert KeyStore(parse(key_file(entry("a")))).find([header]) is not None


@pytest.mark.parametrize(
    "headers", [[], ["Bearer"], ["Bearer "], ["key-of-a"], ["Basic key-of-a"], ["Bearer key-of-a"] * 2]
)
def test_anything_but_one_bearer_token_is_no_key(headers: list[str]) -> None:
    with pytest.raises(Unauthorized):
        KeyStore(parse(key_file(entry("a")))).find(headers)


@pytest.mark.parametrize("token", ["wrong", "key-of-A", "key-of-a\udcff", "a" * 8000, "ab" * 32])
def test_another_token_is_unknown(token: str) -> None:
    store = KeyStore(parse(key_file(entry("a"))))
    assert store.find([f"Bearer {token}"]) is None


def test_a_new_key_is_shown_once_and_its_entry_admits_it() -> None:
    made = CliRunner().invoke(app, ["key", "new", "team-a"])
    assert made.exit_code == 0
    key = made.stderr.strip().rpartition(" ")[2]
    assert key not in made.stdout
    found = KeyStore(parse(made.stdout.encode())).find([f"Bearer {key}"])
    assert found is not None and found.name == "team-a"
    assert CliRunner().invoke(app, ["key", "new", "team a"]).exit_code == 2
