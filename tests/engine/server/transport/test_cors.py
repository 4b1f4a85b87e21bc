"""Requests of web pages: refused to the browser by default, allowed for the origins of the option alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_engine.server.options import OptionInvalid, parse
from tests.engine.serving import CHAT, JSON, Served, body, serving

PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def open_to_a_page(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tiny_model, tmp_path_factory.mktemp("cors") / "log", "--cors-origins", f"{PAGE}, http://localhost:3000"
    ) as served:
        yield served


def cors(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


def test_a_page_of_an_allowed_origin_may_call_and_read(open_to_a_page: Served) -> None:
    preflight = open_to_a_page.request("OPTIONS", CHAT, headers={"Origin": PAGE, **PREFLIGHT})
    assert (preflight.status, preflight.body) == (204, b"")
    allowed = cors(preflight.headers)
    assert allowed["access-control-allow-origin"] == PAGE and "POST" in allowed["access-control-allow-methods"]
    assert allowed["access-control-allow-headers"] == "authorization,content-type"
    for stream in (False, True):
        given = open_to_a_page.request("POST", CHAT, body(2, stream=stream), {**JSON, "Origin": PAGE})
        assert given.status == 200 and cors(given.headers)["access-control-allow-origin"] == PAGE
    refused = open_to_a_page.request("POST", CHAT, {}, {**JSON, "Origin": PAGE})
    assert refused.status == 400 and cors(refused.headers), "a page must be able to read its error"


def test_others_get_no_permission_and_neither_does_the_admin_port(open_to_a_page: Served, served: Served) -> None:
    for server, origin in ((open_to_a_page, OTHER), (served, PAGE)):
        preflight = server.request("OPTIONS", CHAT, headers={"Origin": origin, **PREFLIGHT})
        assert preflight.status == 405 and cors(preflight.headers) == {}
        assert cors(server.request("POST", CHAT, body(1), {**JSON, "Origin": origin}).headers) == {}
    assert open_to_a_page.request("GET", "/v1/models", headers={"Origin": OTHER}).headers["vary"] == "Origin"
    assert cors(open_to_a_page.admin("GET", "/limits", headers={"Origin": PAGE}).headers) == {}


@pytest.mark.parametrize("text", ["app.example.com", "https://a/b", "https://", "null"])
def test_what_is_no_origin_is_refused_at_start(text: str) -> None:
    with pytest.raises(OptionInvalid, match="cors-origins"):
        parse({"model": "m", "cors-origins": text})
    assert parse({"model": "m", "cors-origins": "*"})[1].cors_origins == ("*",)
