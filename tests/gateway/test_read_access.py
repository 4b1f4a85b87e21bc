"""Tokens of reads at the gateway: what it sends to engines, and what its own admin port asks for."""

import logging
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from sluice import contract
from sluice.auth.read_tokens import RELEASE, read_key, read_token
from sluice_gateway.replicas.read_access import REFRESH_SECONDS, ReadOptions, ReadTokens
from sluice_gateway.server import Gateway
from tests.gateway.engines import FakeEngine, gateway_over, load_document
from tests.gateway.test_fleet import chat, chosen

KEY = read_key(b"k" * 32)
OWNER = "3c1e8d9e-5a2b-4f0e-9f39-2b8c1d1f0a11"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text(KEY)
    return tmp_path / "key"


def asking(name: str, **load: object) -> FakeEngine:
    """An engine that answers reads only with the token of its LLMDeployment."""
    return FakeEngine(name, load_document(**load), read_token=read_token(KEY, OWNER))


async def status(gateway: Gateway, path: str, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as client, client.get(gateway.admin_url + path, headers=named) as response:
        return response.status


async def scraped(gateway: Gateway, *engines: FakeEngine) -> None:
    """Another scrape, of engines that are known as those of the LLMDeployment."""
    for engine in engines:
        engine.backend = replace(engine.backend, owner=OWNER)
    await gateway.scraper.scrape()


async def test_the_load_of_engines_that_ask_is_read_with_their_own_token(key_file: Path) -> None:
    engines = [asking("busy", running=64, waiting=40), asking("idle")]
    async with gateway_over(*engines, reads=ReadOptions(key_file)) as gateway:
        await scraped(gateway, *engines)
        assert [await chosen(gateway, chat(f"{n}")) for n in range(4)] == ["idle"] * 4


async def test_an_engine_that_refuses_the_token_serves_without_its_load_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = asking("r0")
    with caplog.at_level(logging.WARNING, "sluice.gateway"):
        async with gateway_over(engine, reads=ReadOptions(tmp_path / "none")) as gateway:
            await scraped(gateway, engine)
            assert await chosen(gateway, chat("a")) == "r0"
    told = [each.getMessage() for each in caplog.records if "refuses" in each.getMessage()]
    assert told == ["replica r0 refuses reads without a token: it is used without its load"]


async def test_the_admin_port_answers_readers_with_the_token_of_the_release_and_all_probes(key_file: Path) -> None:
    own = f"Bearer {read_token(KEY, RELEASE)}"
    async with gateway_over(admin_port=0, reads=ReadOptions(key_file, is_guarded=True)) as gateway:
        assert await status(gateway, "/metrics", Authorization=own) == 200
        assert await status(gateway, "/metrics", **{contract.HEADER_READ_TOKEN: own.removeprefix("Bearer ")}) == 200
        for wrong in ("", "Bearer ", f"Bearer {KEY}", f"Bearer {read_token(KEY, OWNER)}"):
            assert await status(gateway, "/metrics", Authorization=wrong) == 401
        assert [await status(gateway, path) for path in ("/livez", "/readyz")] == [200, 200]


async def test_without_the_key_no_reader_is_answered_and_without_the_option_all_are(tmp_path: Path) -> None:
    async with gateway_over(admin_port=0, reads=ReadOptions(tmp_path / "none", is_guarded=True)) as gateway:
        for given in ("", "Bearer ", f"Bearer {read_token('', RELEASE)}"):
            assert await status(gateway, "/metrics", Authorization=given) == 401
    async with gateway_over(admin_port=0) as gateway:
        assert await status(gateway, "/metrics") == 200


def test_a_key_that_comes_late_or_is_replaced_is_read_within_a_second(tmp_path: Path) -> None:
    now = [10.0]
    tokens = ReadTokens(tmp_path / "key", clock=lambda: now[0])
    assert tokens.of(OWNER) == ""
    for key in (KEY, read_key(b"n" * 32)):
        (tmp_path / "key").write_text(key)
        now[0] += REFRESH_SECONDS
        assert tokens.of(OWNER) == read_token(key, OWNER) != tokens.of_release()
    assert tokens.of("") == ""


async def test_engines_with_the_token_of_an_earlier_key_are_read_until_they_are_rolled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key").write_text("\n".join((read_key(b"n" * 32), KEY)))
    engines = [asking("busy", running=64, waiting=40), asking("idle")]
    with caplog.at_level(logging.WARNING, "sluice.gateway"):
        async with gateway_over(*engines, reads=ReadOptions(tmp_path / "key")) as gateway:
            await scraped(gateway, *engines)
            await gateway.scraper.scrape()
            assert [await chosen(gateway, chat(f"{n}")) for n in range(4)] == ["idle"] * 4
    assert "refuses the token" not in caplog.text


async def test_the_gateways_own_port_takes_the_token_of_the_newest_key_alone(tmp_path: Path) -> None:
    newest = read_key(b"n" * 32)
    (tmp_path / "key").write_text(f"{newest}\n{KEY}")
    async with gateway_over(admin_port=0, reads=ReadOptions(tmp_path / "key", is_guarded=True)) as gateway:
        for key, answer in ((newest, 200), (KEY, 401)):
            own = f"Bearer {read_token(key, RELEASE)}"
            assert await status(gateway, "/metrics", Authorization=own) == answer
