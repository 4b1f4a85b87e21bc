"""The runner's own rules: what counts as a fault, what a table shows, and that every client is pinned."""

import re
from pathlib import Path

import pytest

from tests.clients import table
from tests.clients.catalogue import CLIENTS, FEATURES, HERE, Client, chosen
from tests.clients.environment import VLLM, version
from tests.clients.outcomes import Outcome, Result, read

LINES = [
    '{"planned": ["text", "stream", "n"]}',
    "a line of the client's own",
    '{"feature": "n", "ok": null, "detail": "one completion per call"}',
    '{"feature": "text", "ok": true, "detail": "Blue."}',
]


def result(*outcomes: Outcome) -> Result:
    return Result("openai-python", "1.2.3", "0123456789abcdef", "abc", outcomes)


def test_a_planned_feature_without_an_outcome_failed() -> None:
    outcomes = read(LINES, "the driver ended with 1")
    assert [(each.feature, each.mark) for each in outcomes] == [("text", "✓"), ("stream", "✗"), ("n", "–")]
    assert outcomes[1].detail == "the driver ended with 1"


def test_a_driver_that_prints_nothing_failed() -> None:
    assert [(each.feature, each.ok) for each in read([], "the driver ended with 1")] == [("text", False)]


def test_a_feature_that_the_catalogue_does_not_name_is_refused() -> None:
    with pytest.raises(ValueError, match="telepathy"):
        read(['{"planned": ["telepathy"]}'], "")


def test_the_table_has_a_mark_per_outcome_and_the_reason_of_each_dash() -> None:
    text = table.markdown([result(Outcome("text", True, ""), Outcome("stream", False, ""), Outcome("n", None, "why"))])
    assert "| text | ✓ |" in text
    assert "| stream | ✗ |" in text
    assert "* openai-python, n: why" in text
    assert "| openai-python | 1.2.3 | `0123456789` (abc) |" in text


def test_the_table_shows_what_an_agent_did() -> None:
    text = table.markdown([result(Outcome("agent", True, '{"role": "user"}\n{"type": "function_call"}'))])
    assert '```json\n{"role": "user"}\n{"type": "function_call"}\n```' in text


def test_only_a_cross_is_a_fault() -> None:
    outcomes = (Outcome("text", True, ""), Outcome("n", None, ""), Outcome("stream", False, "x"))
    assert table.faults([result(*outcomes)]) == [("openai-python", outcomes[2])]


def test_results_survive_their_file() -> None:
    given = result(Outcome("text", True, "Blue."))
    assert Result.of_json(given.as_json()) == given


def test_clients_are_chosen_by_name_or_by_ci() -> None:
    assert chosen([]) == CLIENTS
    assert {client.name for client in chosen(["ci"])} == {client.name for client in CLIENTS if client.ci}
    with pytest.raises(ValueError, match="There is no client gopher"):
        chosen(["gopher"])


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_is_pinned_without_an_address(client: Client) -> None:
    assert re.fullmatch(r"\d+(\.\d+)+\S*", version(client))
    files = [path for path in client.folder.iterdir() if path.suffix in (".txt", ".json")]
    assert len(files) == (0 if client.package == VLLM else 2)
    assert [path.name for path in files if "://registry" in path.read_text() or "--index" in path.read_text()] == []
    if client.language == "python" and files:
        lines = (client.folder / "lock.txt").read_text().splitlines()
        assert [line for line in lines if not re.fullmatch(r"[\w.-]+==\S+", line)] == []


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_case_of_a_driver_is_a_feature_of_the_table(client: Client) -> None:
    scripts = [path.read_text() for path in client.folder.iterdir() if path.suffix in (".py", ".mjs")]
    named = re.findall(r'(?:@case|lacks|feature)\("([^"]+)"', "\n".join(scripts))
    assert set(named) <= set(FEATURES)


def test_the_stored_table_is_that_of_the_stored_results_and_has_no_fault() -> None:
    stored = table.load()
    assert Path(table.TABLE).read_text() == table.markdown(stored)
    assert table.faults(stored) == []
    assert {result.client for result in stored} == {client.name for client in CLIENTS}


def test_every_folder_of_a_driver_is_in_the_catalogue() -> None:
    folders = {path.name for language in ("python", "node") for path in (HERE / language).iterdir() if path.is_dir()}
    assert folders == {client.name for client in CLIENTS}
