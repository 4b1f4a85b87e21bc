"""Reads of the admin port with a token of reads: over sockets of a real server, which admits readers and no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice import contract
from tests.engine.serving import JSON, Served, serving

READS = ("/metrics", "/load", "/limits", "/state")
PROBES = ("/livez", "/readyz")
BEARER = {"Authorization": "Bearer r34d"}


@pytest.fixture(scope="module")
def asking(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("asking")
    (folder / "token").write_text("s3cret\n")
    (folder / "read").write_text("r34d\n")
    options = ("--admin-token-file", str(folder / "token"), "--read-token-file", str(folder / "read"))
    with serving(tiny_model, folder / "log", *options) as served:
        yield served, folder / "read"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer r34"},
        {"Authorization": "Basic r34d"},
        {"Authorization": "r34d"},
        {"Authorization": "Bearer r34d\xe9"},
        {contract.HEADER_READ_TOKEN: "r34"},
        {"Authorization": "Bearer wrong", contract.HEADER_READ_TOKEN: "r34d"},
    ],
    ids=str,
)
def test_a_read_without_the_token_is_401_and_says_what_is_needed(
    asking: tuple[Served, Path], headers: dict[str, str]
) -> None:
    for path in (*READS, contract.PATH_KV_EVENTS, "/metrics?token=r34d"):
        answer = asking[0].admin("GET", path, None, headers)
        assert answer.status == 401, path
        assert (answer.headers["www-authenticate"], answer.error["code"]) == ("Bearer", "invalid_api_key")
        assert "Authorization: Bearer" in answer.error["message"] and "r34d" not in answer.error["message"]


@pytest.mark.parametrize(
    "headers", [BEARER, {contract.HEADER_READ_TOKEN: "r34d"}, {"Authorization": "Bearer s3cret"}], ids=str
)
def test_readers_with_the_token_and_the_operator_with_its_own_are_answered(
    asking: tuple[Served, Path], headers: dict[str, str]
) -> None:
    assert [asking[0].admin("GET", path, None, headers).status for path in READS] == [200] * len(READS)


def test_the_probes_of_the_kubelet_need_no_token(asking: tuple[Served, Path]) -> None:
    assert [asking[0].admin("GET", path).status for path in PROBES] == [200, 200]


def test_a_reader_writes_nothing(asking: tuple[Served, Path]) -> None:
    for headers in (BEARER, {contract.HEADER_READ_TOKEN: "s3cret"}):
        for method, path in (("PATCH", "/limits"), ("POST", "/drain")):
            body = {"max_queue": 3, "ttl_seconds": 60}
            assert asking[0].admin(method, path, body, JSON | headers).status == 401
    assert asking[0].admin("GET", "/readyz").status == 200


def test_a_token_that_is_replaced_applies_at_once_and_one_that_is_gone_admits_nobody(
    asking: tuple[Served, Path],
) -> None:
    served, file = asking
    file.write_text("n3w")
    assert served.admin("GET", "/load", None, BEARER).status == 401
    assert served.admin("GET", "/load", None, {"Authorization": "Bearer n3w"}).status == 200
    file.unlink()
    for given in ("Bearer n3w", "Bearer "):
        assert served.admin("GET", "/load", None, {"Authorization": given}).status == 401
    file.write_text("r34d")
    assert served.admin("GET", "/load", None, BEARER).status == 200
