"""The revision that a deployment has recorded: it is used for its own URI only, and a broken record stops nothing."""

import json
from pathlib import Path

import pytest

from sluice_engine.sources import SourceError, fetch
from sluice_engine.sources.pin import pinned
from tests.engine.sources.test_fetch import PATIENCE
from tests.hub_server import COMMIT, Hub

URI = "hf://org/model"


def record(folder: Path, **fields: object) -> Path:
    file = folder / "revision.json"
    file.write_text(json.dumps({"uri": URI, "revision": COMMIT} | fields))
    return file


@pytest.mark.parametrize("uri", [URI, f"{URI}@main", f"{URI}/a/b.gguf", f"{URI}/b.gguf@v1"])
def test_the_recorded_commit_replaces_a_branch(uri: str, tmp_path: Path) -> None:
    assert pinned(uri, record(tmp_path, uri=uri)) == f"{uri.partition('@')[0]}@{COMMIT}"


@pytest.mark.parametrize(
    "fields",
    [
        {"uri": "hf://org/other"},
        {"revision": "main"},
        {"revision": None},
        {"revision": "../x"},
        {"revision": COMMIT[1:]},
    ],
)
def test_another_models_record_and_one_without_a_commit_are_not_used(fields: dict[str, object], tmp_path: Path) -> None:
    assert pinned(URI, record(tmp_path, **fields)) == URI


@pytest.mark.parametrize("content", ["", "[]", "null", "{", '{"uri": 1}'])
def test_an_unreadable_record_is_not_used(content: str, tmp_path: Path) -> None:
    file = tmp_path / "revision.json"
    file.write_text(content)
    assert pinned(URI, file) == URI
    assert pinned(URI, tmp_path / "absent") == pinned(URI, None) == URI


@pytest.mark.parametrize("uri", ["s3://bucket/prefix", "/models/x"])
def test_only_a_hub_keeps_old_revisions(uri: str, tmp_path: Path) -> None:
    assert pinned(uri, record(tmp_path, uri=uri)) == uri


def test_a_cached_pin_needs_no_network_and_no_branch(hub: Hub, tmp_path: Path) -> None:
    fetched = fetch(URI, tmp_path, patience=PATIENCE)
    hub.moved = True
    with pytest.raises(SourceError):
        fetch(URI, tmp_path, patience=PATIENCE)
    asked = len(hub.requests)
    assert fetch(pinned(URI, record(tmp_path)), tmp_path, patience=PATIENCE) == fetched
    assert len(hub.requests) == asked
