"""Gateways tell each other which prompts they have sent where, so that they choose the same replica for a conversation."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice.auth.read_tokens import read_key
from sluice_gateway.peers.sent_prompts import MOST_BYTES, MOST_PROMPTS, MOST_TOLD, BadPrompts, ReadPrompts, SentPrompts
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_gateway.routing import Prompt
from sluice_gateway.routing.prefix_hashes import MAX_STEPS
from sluice_gateway.server import Gateway
from tests.gateway.engines import FakeEngine, gateway_over
from tests.gateway.test_fleet import LONG, chat, chosen

URL = "http://other"
PROMPTS = st.lists(
    st.tuples(st.text(max_size=9), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9).map(tuple)), max_size=30
)


def prompt(steps: tuple[int, ...]) -> Prompt:
    return Prompt(64.0 * len(steps), steps, 64.0)


@given(PROMPTS, st.integers(0, 60))
def test_what_is_kept_is_read_once_and_in_order(sent: list[tuple[str, tuple[int, ...]]], most: int) -> None:
    prompts, reader = SentPrompts(most), ReadPrompts()
    for half in (sent[: len(sent) // 2], sent[len(sent) // 2 :]):
        for replica, steps in half:
            prompts.add(replica, prompt(steps))
        kept = [(replica, prompt(steps)) for replica, steps in half]
        while sum(len(one.steps) for _, one in kept) > most:
            kept.pop(0)
        assert reader.learn(URL, prompts.document(reader.after(URL))) == kept
        assert reader.learn(URL, prompts.document(reader.after(URL))) == []


@pytest.mark.parametrize(("steps", "whole"), [(1, MOST_PROMPTS), (MAX_STEPS, MOST_TOLD // MAX_STEPS)])
def test_a_document_is_bounded_and_the_next_one_goes_on(steps: int, whole: int) -> None:
    prompts, reader = SentPrompts(), ReadPrompts()
    name = f"{'n' * 63}/{'p' * 253}"
    for number in range(whole + 3):
        prompts.add(name, prompt(tuple(range(2**63 + number, 2**63 + number + steps))))
    documents = []
    for _ in range(3):
        documents.append(prompts.document(reader.after(URL)))
        reader.learn(URL, documents[-1])
    assert [len(each["prompts"]) for each in documents] == [whole, 3, 0]
    assert len(json.dumps(documents[0])) <= MOST_BYTES


def test_gateways_that_are_gone_are_forgotten() -> None:
    prompts, reader = SentPrompts(), ReadPrompts()
    prompts.add("r0", prompt((1,)))
    reader.learn(URL, prompts.document(""))
    reader.keep(["http://third"])
    assert reader.after(URL) == ""


def test_a_gateway_that_has_been_restarted_is_read_from_its_beginning() -> None:
    before, reader = SentPrompts(), ReadPrompts()
    for number in range(5):
        before.add("r0", prompt((number,)))
    reader.learn(URL, before.document(reader.after(URL)))
    after = SentPrompts()
    after.add("r1", prompt((7,)))
    assert reader.learn(URL, after.document(reader.after(URL))) == [("r1", prompt((7,)))]


@pytest.mark.parametrize("after", ["", ":", "x:1", "x", "1:1:1", f"x:{'9' * 5000}"])
def test_any_question_gets_what_is_kept(after: str) -> None:
    prompts = SentPrompts()
    prompts.add("r0", prompt((1,)))
    own = prompts.document("")["start"]
    assert len(prompts.document(after)["prompts"]) == 1
    assert prompts.document(f"{own}:{'9' * 5000}")["prompts"] == []
    assert len(prompts.document(f"{own}:-1")["prompts"]) == 1


@pytest.mark.parametrize(
    "document",
    [
        None, 5, [], {}, {"start": "x", "last": 1, "prompts": 5}, {"start": "x", "last": "1", "prompts": []},
        {"start": 1, "last": 1, "prompts": []}, {"start": "x", "last": 1, "prompts": [["r", 64.0]]},
        {"start": "x", "last": 1, "prompts": [[5, 64.0, ""]]}, {"start": "x", "last": 1, "prompts": [["r", 0, ""]]},
        {"start": "x", "last": 1, "prompts": [["r", float("nan"), ""]]}, {"start": "x", "last": 1, "prompts": [["r", True, ""]]},
        {"start": "x", "last": 1, "prompts": [["r", 64.0, "AAAA"]]}, {"start": "x", "last": 1, "prompts": [["r", 64.0, "é"]]},
        {"start": "x", "last": 1, "prompts": [["r", 64.0, 5]]}, {"start": "x", "last": True, "prompts": []},
        {"start": "x", "last": 1, "prompts": [["r", 1e-320, ""]]}, {"start": "x", "last": 1, "prompts": [["r", 1e300, ""]]},
        {"start": "", "last": 1, "prompts": []}, {"start": "a&b", "last": 1, "prompts": []},
        {"start": "x" * 65, "last": 1, "prompts": []},
    ],
)  # fmt: skip
def test_a_wrong_document_changes_nothing(document: Any) -> None:
    prompts, reader = SentPrompts(), ReadPrompts()
    prompts.add("r0", prompt((1,)))
    reader.learn(URL, prompts.document(""))
    read = reader.after(URL)
    with pytest.raises(BadPrompts):
        reader.learn(URL, document)
    assert reader.after(URL) == read


@asynccontextmanager
async def two_gateways(folder: Path, *engines: FakeEngine) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Real gateways over the same replicas, each with the admin port of the other and one key of reads."""
    (folder / "read").write_text(read_key(b"k" * 32))
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(gateway_over(*engines, reads=ReadOptions(folder / "read"), admin_port=0))
        other = Gateway(lambda: [engine.backend for engine in engines], one._options)
        await stack.enter_async_context(other)
        await other.scraper.scrape()
        one.shared_by(2, [other.admin_url])
        other.shared_by(2, [one.admin_url])
        yield one, other


async def same_choices(one: Gateway, other: Gateway, topic: str) -> int:
    """Of six conversations those whose second turn goes by the other gateway to the replica of the first."""
    found = 0
    await chosen(other, chat("hello"))  # their turns differ from here on
    for number in range(6):
        first = await chosen(one, chat(f"{topic} {number} {LONG}"))
        await other.prompts_of_others.read()
        found += first == await chosen(other, chat(f"{topic} {number} {LONG}", "It is a table.", "And then?"))
    return found


async def test_a_later_turn_goes_by_another_gateway_to_the_replica_of_the_first(tmp_path: Path) -> None:
    async with two_gateways(tmp_path, *(FakeEngine(f"r{number}") for number in range(4))) as (one, other):
        assert await same_choices(one, other, "first") == 6
        other.shared_by(1)
        assert await same_choices(one, other, "second") < 6


async def test_a_gateway_that_is_alone_keeps_nothing_for_others(tmp_path: Path) -> None:
    async with two_gateways(tmp_path, FakeEngine("r0")) as (one, _):
        one.shared_by(1)
        await chosen(one, chat(LONG))
        assert one.fleet.sent_prompts.document("")["prompts"] == []


async def test_a_prompt_at_a_replica_that_has_been_removed_is_passed_over(tmp_path: Path) -> None:
    engines = [FakeEngine("r0"), FakeEngine("r1")]
    async with two_gateways(tmp_path, *engines) as (one, other):
        other.fleet.sent_prompts.add("gone", prompt((1, 2)))
        await one.prompts_of_others.read()
        assert len(one.fleet.caches) == 0


async def test_prompts_are_told_to_gateways_only_and_each_other_gateway_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_gateways(tmp_path, FakeEngine("r0")) as (one, other):
        async with (
            aiohttp.ClientSession() as client,
            client.get(other.admin_url + contract.PATH_PROMPTS) as response,
        ):
            assert response.status == 401
        one.shared_by(3, ["http://127.0.0.1:9", other.admin_url])
        await chosen(other, chat(LONG))
        for _ in range(2):
            await one.prompts_of_others.read()
        assert len(one.fleet.caches) > 0
        one.shared_by(2, [other.admin_url])
        await one.prompts_of_others.read()
    told = [line for line in caplog.messages if "are not known here" in line]
    assert len(told) == 1
